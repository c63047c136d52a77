"""``testbed verify``: prove algorithms without data, for every world size of a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.arguments import parse_ranks
from testbed.errors import UsageError, reporting_errors
from testbed.report.folder import document
from testbed.report.table import Advance, print_json, progress, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from collectives import Proof

EXAMPLES = """\b
Examples:
  testbed verify
  testbed verify my_algorithms.py:my_ring --ranks 2-16
"""

MODEL = (
    "symbolic execution of every rank's program under rendezvous: messages match, nothing deadlocks, "
    "every contribution arrives exactly once, no two writes conflict"
)

LEGEND = (
    "sent: bytes that the busiest rank sends, over those of the buffer; bound: what no algorithm goes below; "
    "steps: longest chain of dependent messages."
)


@dataclass(frozen=True)
class Outcome:
    """Of one algorithm: the proofs for ever larger world sizes, and the evidence where they end."""

    algorithm: str
    wanted: int
    proofs: tuple[Proof, ...]
    failed_at: int | None = None
    evidence: str | None = None


@reporting_errors
def verify(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM|FILE.py:FUNCTION]...",
            help="A shipped algorithm, or a function in a file of your own. By default all shipped ones.",
        ),
    ] = None,
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="World sizes: 8, 2-64 (every one), 2,4,8.")
    ] = "2-64",
    collective: Annotated[
        str,
        typer.Option(metavar="NAME", help="What a function that does not declare it is to be proved for."),
    ] = "all_reduce",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Prove algorithms right, without data.

    A wrong program ends with exit code 1 and the grid of ranks and steps around the fault.
    """
    from collectives import algorithm_names

    sizes = parse_ranks(ranks)
    names = algorithms or list(algorithm_names(collective))
    if not names:
        raise UsageError(f"no algorithm for {collective} ships yet; name one of your own: FILE.py:FUNCTION")
    with progress(len(names) * len(sizes)) as advance:
        outcomes = prove_all(names, sizes, collective, advance)
    if as_json:
        print_json(document(method="proved", model=MODEL, rows=rows_of(outcomes)))
    else:
        console = stdout_console()
        console.print(proof_table(outcomes))
        for outcome in outcomes:
            if outcome.evidence is not None:
                console.print(f"\n{outcome.evidence}", markup=False, soft_wrap=True)
        console.print(f"\n{LEGEND}\nProved by {MODEL}.", style="dim")
    if any(outcome.failed_at for outcome in outcomes):
        raise typer.Exit(1)


def prove_all(names: Iterable[str], sizes: Sequence[int], collective: str, advance: Advance) -> list[Outcome]:
    """Prove each algorithm for each world size, up to the first size at which it fails."""
    from collectives import resolve_algorithm

    chosen = [resolve_algorithm(name, collective) for name in names]
    return [_prove(algorithm, sizes, advance) for algorithm in chosen]


def _prove(algorithm: Any, sizes: Sequence[int], advance: Advance) -> Outcome:
    from collectives import ProgramError, verify

    proofs: list[Proof] = []
    for world_size in sizes:
        advance(f"{algorithm}, {world_size} ranks")
        try:
            proofs.append(verify(algorithm, world_size))
        except ProgramError as error:
            return Outcome(str(algorithm), len(sizes), tuple(proofs), world_size, str(error))
    return Outcome(str(algorithm), len(sizes), tuple(proofs))


def rows_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return one JSON row per algorithm and world size."""
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        rows += [{"proved": True, "evidence": None, **asdict(proof)} for proof in outcome.proofs]
        if outcome.failed_at is not None:
            failed = {"algorithm": outcome.algorithm, "world_size": outcome.failed_at}
            rows.append({"proved": False, "evidence": outcome.evidence, **failed})
    return rows


def proof_table(outcomes: Iterable[Outcome]) -> Table:
    """Return the table: of a long range, the powers of two and both ends are shown."""
    columns = ("algorithm", "proved for", "ranks", "steps", "messages", "sent", "bound", "sent / bound")
    rows: list[tuple[str, ...]] = []
    for outcome in outcomes:
        lead = (outcome.algorithm, f"{len(outcome.proofs)} of {outcome.wanted} world sizes")
        for proof in _shown(outcome.proofs):
            sent, bound = proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction
            rows.append(
                (
                    *lead,
                    str(proof.world_size),
                    str(proof.num_steps),
                    str(proof.num_messages),
                    f"{sent:.3f}",
                    f"{bound:.3f}",
                    f"{sent / bound:.2f}" if bound else "–",
                )
            )
            lead = ("", "")
        if outcome.failed_at is not None:
            rows.append((*lead, str(outcome.failed_at), "WRONG", *("",) * 4))
    return table(columns, rows, text_columns=2)


def _shown(proofs: Sequence[Proof]) -> list[Proof]:
    if len(proofs) <= 8:
        return list(proofs)
    return [
        proof
        for number, proof in enumerate(proofs)
        if number in (0, len(proofs) - 1) or proof.world_size & (proof.world_size - 1) == 0
    ]
