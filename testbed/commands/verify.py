"""``testbed verify``: proofs of algorithms, without data, for every world size of a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_COUNT, parse_ranks
from testbed.output.folder import document
from testbed.output.table import counted, progress
from testbed.report.proofs import answer, print_proofs
from testbed.studies.proofs import MODEL, Outcome, choose, prove_wholly, rows_of

if TYPE_CHECKING:
    from collectives.program import Algorithm

MAX_SIZES = 2048
"""World sizes of one command: beyond, saying how much work each is takes minutes."""
MANY_RANKS = 1024
"""Up to so many whatever ships is proved in seconds, so that the work is not estimated first."""
MAX_WORK = 50_000_000
"""Operations of a proof where nobody says how many: minutes, and gigabytes of memory."""

EXAMPLES = """\b
Examples:
  testbed verify
  testbed verify ring --collective all_gather
  testbed verify my_algorithms.py:my_ring --ranks 2-16
  testbed verify --ranks 2-64,512,1024 --budget 250000
"""


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
    if len(sizes) > MAX_SIZES:
        raise UsageError(f"--ranks {ranks}: {len(sizes)} world sizes; at most {MAX_SIZES} are proved at once")
    chosen = choose(algorithms, collective)
    if budget is None:
        _check_work(chosen, sizes[-1])
    with progress(len(chosen) * (len(sizes) + 1)) as advance:
        outcomes = prove_wholly(chosen, sizes, ranks, advance, budget)
    refusals = [outcome for outcome in outcomes if outcome.refused]
    if not any(outcome.proofs or outcome.failed_at for outcome in outcomes):
        why = refusals[0].reason if refusals else f"every proof is over --budget {budget}"
        raise UsageError(f"nothing was proved: {why}")
    refused = [{**_world_sizes(outcome, outcome.refused), "reason": outcome.reason} for outcome in refusals]
    left_out = [_world_sizes(outcome, outcome.left_out) for outcome in outcomes if outcome.left_out]
    rows = rows_of(outcomes)
    delivery.give(
        document(method="proved", model=MODEL, rows=rows, refused=refused, left_out=left_out),
        lambda console: print_proofs(console, outcomes, budget),
        f"Are {counted(len(chosen), 'algorithm')} right, for {ranks} ranks?",
        answer(outcomes),
    )
    if any(outcome.failed_at for outcome in outcomes):
        raise typer.Exit(1)


def _check_work(chosen: Sequence[Algorithm], world_size: int) -> None:
    """Check that proofs for *world_size* ranks, if there are many, do not go through too much by far.

    Raises:
        UsageError: one does; says how it is made all the same.
    """
    from collectives.proof import estimate_work

    if world_size <= MANY_RANKS:
        return
    for algorithm in chosen:
        work = estimate_work(algorithm, world_size)
        if work > MAX_WORK:
            raise UsageError(
                f"{algorithm}, {world_size} ranks: a proof goes through about {work} operations, and without "
                f"--budget through at most {MAX_WORK}; to make it all the same give --budget {work + 1}"
            )


def _world_sizes(outcome: Outcome, sizes: Sequence[int]) -> dict[str, Any]:
    return {"algorithm": outcome.algorithm, "collective": outcome.collective, "world_sizes": list(sizes)}
