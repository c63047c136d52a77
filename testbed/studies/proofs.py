"""Proofs of algorithms for a range of world sizes, and for every size where that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from collectives import Algorithm, NotSupportedError, ProgramError, Proof, resolve_algorithm, verify
from collectives.algorithms import ALGORITHMS
from collectives.catalogue.admission import is_shipped
from collectives.catalogue.bounds import OutOfBoundsError, within
from collectives.catalogue.resolve import resolve_for_every_collective
from collectives.catalogue.user_files import unbounded
from collectives.program.contracts import CONTRACTS
from collectives.proof import estimate_work
from testbed.errors import UsageError, is_installed
from testbed.output.table import Advance, silent

if TYPE_CHECKING:
    from collectives.proof.every_size import Scope

MODEL = (
    "symbolic execution of every rank's program under rendezvous: messages match, nothing deadlocks, "
    "every contribution arrives exactly once, no two writes conflict"
)

EVERY_SIZE, POWERS_OF_TWO = "every size", "2^k"
"""Every world size from 2 on, and every one that is a power of two."""

ALWAYS_PROVED = "2-64"
"""World sizes for which ``testbed verify`` proves each shipped algorithm one by one."""

Which: TypeAlias = tuple[str, str]
"""An algorithm, with its parameters, and the collective that it carries out."""

MANY_PROOFS = 1000
"""From how many on they are made on all cores; to start processes for them takes some seconds."""

MOST_SECONDS = 60.0
"""By the clock, after which an algorithm that is not shipped counts as not proved for every size.

The solver's work on a shipped one is bounded as well, but in units that are the same on every machine.
"""


@dataclass(frozen=True)
class Outcome:
    """Of one algorithm: the proofs for ever larger world sizes, and the evidence where they end.

    World sizes that the program itself refuses are no failure; *reason* is that of the first.
    Those that were left out would have gone over the budget.

    Attributes:
        proved_for: ``every size``, ``2^k``, or world sizes, as in a range: `ALWAYS_PROVED` of a shipped
            algorithm, the range that was asked for of another; None where nothing is proved.
        bytes_proved_for: the same, of the bytes that the busiest rank sends.
    """

    algorithm: str
    collective: str
    wanted: int
    proofs: tuple[Proof, ...]
    refused: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    reason: str | None = None
    failed_at: int | None = None
    evidence: str | None = None
    proved_for: str | None = None
    bytes_proved_for: str | None = None


def choose(names: Iterable[str] | None, collective: str | None) -> list[Algorithm]:
    """Return the algorithms that *names* mean, by default all that are shipped.

    Raises:
        UsageError: none is shipped for *collective*.
    """
    if names and collective:
        return [resolve_algorithm(name, collective) for name in names]
    if names:
        return [own for name in names for own in resolve_for_every_collective(name)]
    if collective not in (None, *CONTRACTS):
        raise UsageError(f"unknown collective {collective!r}; known: {', '.join(CONTRACTS)}")
    wanted = [collective] if collective else list(CONTRACTS)
    shipped = [own for known in wanted for own in ALGORITHMS if own.collective == known]
    if not shipped:
        raise UsageError(f"no algorithm for {collective} ships yet; name one of your own: FILE.py:FUNCTION")
    return shipped


def root_of(algorithm: Algorithm, world_size: int) -> int:
    """Return the root that is bound to *algorithm*, by default 0.

    Raises:
        UsageError: there is no such rank.
    """
    root = algorithm.parameters.get("root", 0)
    if not isinstance(root, int) or not 0 <= root < world_size:
        raise UsageError(f"{algorithm}, {world_size} ranks: the root is a rank from 0 to {world_size - 1}")
    return root


def prove_wholly(
    chosen: Sequence[Algorithm],
    sizes: Sequence[int],
    ranks: str,
    advance: Advance,
    budget: int | None = None,
    found: dict[Which, Outcome] | None = None,
) -> list[Outcome]:
    """Prove each algorithm for each world size, and beyond the *ranks* that these are; many on all cores.

    *found* gets each outcome as it comes, so that it has some where this is interrupted.
    """
    from testbed.tasks.spread import results

    found = {} if found is None else found
    num_each = len(sizes) + 1
    if len(chosen) * num_each < MANY_PROOFS or any(own not in ALGORITHMS for own in chosen):
        for own in chosen:
            outcome = _prove(own, sizes, advance, budget, found)
            advance(f"{own} {own.collective}, every size")
            found[which(own)] = _with_scope(own, outcome, ranks)
    else:
        tasks = [(own.name, own.collective, sizes, ranks, budget) for own in chosen]
        for outcome in results(_prove_shipped, tasks):
            found[outcome.algorithm, outcome.collective] = outcome
            advance(f"{outcome.algorithm} {outcome.collective}", len(found) * num_each)
    return [found[which(own)] for own in chosen]


def which(algorithm: Algorithm) -> Which:
    """Return by what the outcome of *algorithm* is found."""
    return str(algorithm), algorithm.collective


def _prove_shipped(task: tuple[str, str, Sequence[int], str, int | None]) -> Outcome:
    """Return the outcome of a name, collective, world sizes, the ranks that these are, and a budget."""
    name, collective, sizes, ranks, budget = task
    algorithm = resolve_algorithm(name, collective)
    outcome = _prove(algorithm, sizes, silent, budget)
    return _with_scope(algorithm, outcome, ranks)


def _prove(
    algorithm: Algorithm,
    sizes: Sequence[int],
    advance: Advance,
    budget: int | None,
    found: dict[Which, Outcome] | None = None,
) -> Outcome:
    """Return the outcome of *algorithm*; where that is interrupted *found* gets what there is of it."""
    so_far = Outcome(*which(algorithm), len(sizes), ())
    for world_size in sizes:
        advance(f"{algorithm} {algorithm.collective}, {world_size} ranks")
        if budget is not None and estimate_work(algorithm, world_size) > budget:
            so_far = replace(so_far, left_out=(*so_far.left_out, world_size))
            continue
        try:
            proof = verify(algorithm, world_size, root=root_of(algorithm, world_size))
            so_far = replace(so_far, proofs=(*so_far.proofs, proof))
        except NotSupportedError as refusal:
            reason = so_far.reason or str(refusal)
            so_far = replace(so_far, refused=(*so_far.refused, world_size), reason=reason)
        except ProgramError as error:
            return replace(so_far, failed_at=world_size, evidence=str(error))
        except KeyboardInterrupt:
            if found is not None and so_far.proofs:
                found[which(algorithm)] = so_far
            raise
    return so_far


def _with_scope(algorithm: Algorithm, outcome: Outcome, ranks: str) -> Outcome:
    if not outcome.proofs or outcome.failed_at is not None:
        return outcome
    tried = ALWAYS_PROVED if algorithm in ALGORITHMS else ranks
    beyond = scope_beyond(algorithm)
    if beyond is None or (outcome.refused and beyond.sizes == EVERY_SIZE):
        return replace(outcome, proved_for=tried, bytes_proved_for=tried)
    of_bytes = beyond.sizes if beyond.with_bytes else tried
    return replace(outcome, proved_for=beyond.sizes, bytes_proved_for=of_bytes)


def scope_beyond(algorithm: Algorithm) -> Scope | None:
    """Return for which world sizes *algorithm* is proved all at once, if so and if the solver is there."""
    if not solver_is_there():
        return None
    from collectives.proof.every_size import NotProvedError, scope_of

    with suppress(NotProvedError, OutOfBoundsError):
        if is_shipped(algorithm):
            return scope_of(algorithm)
        return within(MOST_SECONDS, scope_of, unbounded(algorithm))
    return None


def solver_is_there() -> bool:
    """Return whether z3, which proves for every size, is installed."""
    return is_installed("z3")


def rows_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return one JSON row per algorithm and world size."""
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        scope = {"proved_for": outcome.proved_for, "bytes_proved_for": outcome.bytes_proved_for}
        rows += [{"proved": True, "evidence": None, **scope, **asdict(proof)} for proof in outcome.proofs]
        if outcome.failed_at is not None:
            failed = {"algorithm": outcome.algorithm, "collective": outcome.collective}
            found = {"proved": False, "evidence": outcome.evidence, **dict.fromkeys(scope)}
            rows.append({**found, **failed, "world_size": outcome.failed_at})
    return rows
