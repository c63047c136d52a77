"""``testbed verify``: proofs of algorithms, without data, for every world size of a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_COUNT, parse_ranks
from testbed.output.folder import document
from testbed.output.table import Advance, counted, progress, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from collectives import Algorithm, Proof

EXAMPLES = """\b
Examples:
  testbed verify
  testbed verify ring --collective all_gather
  testbed verify my_algorithms.py:my_ring --ranks 2-16
  testbed verify --ranks 2-64,512,1024 --budget 250000
"""

MODEL = (
    "symbolic execution of every rank's program under rendezvous: messages match, nothing deadlocks, "
    "every contribution arrives exactly once, no two writes conflict"
)

LEGEND = (
    "sent: bytes that the busiest rank sends, over those of the buffer; bound: what no algorithm goes below; "
    "steps: longest chain of dependent messages."
)

MAX_DETAILED = 8
"""Algorithms up to which figures for several world sizes are shown of each."""

BRIEF = " Figures are those of the largest world size; name an algorithm, or use --json, for the others."


@dataclass(frozen=True)
class Outcome:
    """Of one algorithm: the proofs for ever larger world sizes, and the evidence where they end.

    World sizes that the program itself refuses are no failure; *reason* is that of the first.
    Those that were left out would have gone over the budget.
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


@reporting_errors
def verify(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM|FILE.py:FUNCTION|FILE.xml|FILE.json]...",
            help="A shipped algorithm, a function in a file of your own, MSCCL XML or a schedule. By default "
            "all shipped ones.",
        ),
    ] = None,
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="World sizes: 8, 2-64 (every one), 2,4,8.")
    ] = "2-64",
    collective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="By default every collective that an algorithm is shipped for. A function of your own that "
            "declares none is proved for all_reduce.",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_COUNT,
            metavar="N",
            help="Leave out proofs that would go through more than about N operations, and say which; "
            "by default none. 250000 take a second or two.",
        ),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Prove algorithms right, without data.

    A wrong program ends with exit code 1 and the grid of ranks and steps around the fault.
    """
    from testbed.pages import Delivery

    delivery = Delivery(as_json, html)
    delivery.check()
    sizes = parse_ranks(ranks)
    chosen = choose(algorithms, collective)
    with progress(len(chosen) * len(sizes)) as advance:
        outcomes = prove_all(chosen, sizes, advance, budget)
    refusals = [outcome for outcome in outcomes if outcome.refused]
    if not any(outcome.proofs or outcome.failed_at for outcome in outcomes):
        why = refusals[0].reason if refusals else f"every proof is over --budget {budget}"
        raise UsageError(f"nothing was proved: {why}")
    refused = [{**_world_sizes(outcome, outcome.refused), "reason": outcome.reason} for outcome in refusals]
    left_out = [_world_sizes(outcome, outcome.left_out) for outcome in outcomes if outcome.left_out]
    rows = rows_of(outcomes)
    delivery.give(
        document(method="proved", model=MODEL, rows=rows, refused=refused, left_out=left_out),
        lambda console: _print(console, outcomes, budget),
        f"Are {counted(len(chosen), 'algorithm')} right, for {ranks} ranks?",
        _answer(outcomes),
    )
    if any(outcome.failed_at for outcome in outcomes):
        raise typer.Exit(1)


def choose(names: Iterable[str] | None, collective: str | None) -> list[Algorithm]:
    """Return the algorithms that *names* mean, by default all that are shipped.

    Raises:
        UsageError: none is shipped for *collective*.
    """
    from collectives import resolve_algorithm
    from collectives.algorithms import ALGORITHMS
    from collectives.catalogue.resolve import resolve_for_every_collective
    from collectives.program.contracts import CONTRACTS

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


def prove_all(
    chosen: Iterable[Algorithm], sizes: Sequence[int], advance: Advance, budget: int | None = None
) -> list[Outcome]:
    """Prove each algorithm for each world size, up to the first size at which it fails.

    Proofs of more than about *budget* operations are left out.
    """
    return [_prove(algorithm, sizes, advance, budget) for algorithm in chosen]


def _prove(algorithm: Algorithm, sizes: Sequence[int], advance: Advance, budget: int | None) -> Outcome:
    from collectives import NotSupportedError, ProgramError, verify
    from collectives.proof import estimate_work

    proofs: list[Proof] = []
    refused: list[int] = []
    left_out: list[int] = []
    reason: str | None = None
    failed: tuple[int, str] | tuple[None, None] = None, None
    for world_size in sizes:
        advance(f"{algorithm} {algorithm.collective}, {world_size} ranks")
        if budget is not None and estimate_work(algorithm, world_size) > budget:
            left_out.append(world_size)
            continue
        try:
            proofs.append(verify(algorithm, world_size, root=root_of(algorithm, world_size)))
        except NotSupportedError as refusal:
            refused.append(world_size)
            reason = reason or str(refusal)
        except ProgramError as error:
            failed = world_size, str(error)
            break
    return Outcome(
        str(algorithm),
        algorithm.collective,
        len(sizes),
        tuple(proofs),
        tuple(refused),
        tuple(left_out),
        reason,
        *failed,
    )


def _answer(outcomes: Sequence[Outcome]) -> str:
    """Return in a sentence what was proved."""
    wrong = [outcome for outcome in outcomes if outcome.failed_at]
    proofs = counted(sum(len(outcome.proofs) for outcome in outcomes), "proof")
    if not wrong:
        return f"All are right, wherever they do not refuse the number of ranks: {proofs}."
    first = f"{wrong[0].algorithm} ({wrong[0].collective}) with {wrong[0].failed_at} ranks"
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"Wrong: {first}{more}."


def _print(console: Console, outcomes: Sequence[Outcome], budget: int | None) -> None:
    console.print(proof_table(outcomes))

    for outcome in outcomes:
        if outcome.evidence is not None:
            console.print(f"\n{outcome.evidence}", markup=False, soft_wrap=True)

    refusals: dict[tuple[str, int], list[str]] = {}

    for outcome in outcomes:
        if outcome.reason is not None:
            who = f"{outcome.algorithm} ({outcome.collective})"
            refusals.setdefault((outcome.reason, len(outcome.refused)), []).append(who)

    if refusals:
        console.print()

    for (reason, count), names in refusals.items():
        line = f"{', '.join(names)}: refused for {count} world size{'s'[: count > 1]}: {reason}"
        console.print(line, markup=False)

    skipped: dict[tuple[int, ...], list[str]] = {}

    for outcome in outcomes:
        if outcome.left_out:
            skipped.setdefault(outcome.left_out, []).append(f"{outcome.algorithm} ({outcome.collective})")

    if skipped:
        console.print(f"\nLeft out, as a proof would go through more than about {budget} operations:")

    for sizes, names in skipped.items():
        console.print(f"  {', '.join(map(str, sizes))} ranks: {', '.join(names)}", markup=False)

    brief = BRIEF if len(outcomes) > MAX_DETAILED else ""
    console.print(f"\n{LEGEND}{brief}\nProved by {MODEL}.", style="dim")


def rows_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return one JSON row per algorithm and world size."""
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        rows += [{"proved": True, "evidence": None, **asdict(proof)} for proof in outcome.proofs]
        if outcome.failed_at is not None:
            failed = {"algorithm": outcome.algorithm, "collective": outcome.collective}
            size = {"world_size": outcome.failed_at}
            rows.append({"proved": False, "evidence": outcome.evidence, **failed, **size})
    return rows


def _world_sizes(outcome: Outcome, sizes: Sequence[int]) -> dict[str, Any]:
    return {"algorithm": outcome.algorithm, "collective": outcome.collective, "world_sizes": list(sizes)}


def proof_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table; where not all is all-reduce, with the collective in place of the messages.

    Of a long range, the powers of two and both ends are shown; of many algorithms, the last only.
    """
    named = any(outcome.collective != "all_reduce" for outcome in outcomes)
    brief = len(outcomes) > MAX_DETAILED
    figures = ("ranks", "steps", "messages", "sent", "bound", "sent / bound")
    rows: list[tuple[str, ...]] = []
    above = ""

    for outcome in outcomes:
        scope = f"{len(outcome.proofs)} of {outcome.wanted} world sizes"
        if outcome.refused or outcome.left_out:
            scope = f"{len(outcome.proofs)} of {outcome.wanted}"
            scope += f", {len(outcome.refused)} refused" if outcome.refused else ""
            scope += f", {len(outcome.left_out)} left out" if outcome.left_out else ""
        cells = [_figures(proof) for proof in _shown(outcome.proofs, brief=brief)]
        if outcome.failed_at is not None:
            cells.append((str(outcome.failed_at), "WRONG", *("",) * 4))
        lead = ("" if outcome.collective == above else outcome.collective, outcome.algorithm, scope)
        for row in cells or [("",) * len(figures)]:
            rows.append((*lead, *row))
            lead = ("", "", "")
        above = outcome.collective

    shown = [0, 1, 2, 3, 4, 6, 7, 8] if named else [1, 2, 3, 4, 5, 6, 7, 8]
    columns = ("collective", "algorithm", "proved for", *figures)

    return table(
        [columns[column] for column in shown],
        [[row[column] for column in shown] for row in rows],
        text_columns=2 + named,
    )


def _figures(proof: Proof) -> tuple[str, ...]:
    sent, bound = proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction
    return (
        str(proof.world_size),
        str(proof.num_steps),
        str(proof.num_messages),
        f"{sent:.3f}",
        f"{bound:.3f}",
        f"{sent / bound:.2f}" if bound else "–",
    )


def _shown(proofs: Sequence[Proof], *, brief: bool) -> list[Proof]:
    if brief:
        return list(proofs[-1:])
    if len(proofs) <= 8:
        return list(proofs)
    return [
        proof
        for number, proof in enumerate(proofs)
        if number in (0, len(proofs) - 1) or proof.world_size & (proof.world_size - 1) == 0
    ]
