"""``testbed verify``: proofs of algorithms, without data, for every world size of a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_COUNT, parse_ranks
from testbed.output.folder import document
from testbed.output.table import counted, progress
from testbed.report.proofs import answer, print_proofs
from testbed.studies.proofs import MODEL, Outcome, choose, prove_wholly, rows_of

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
    chosen = choose(algorithms, collective)
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


def _world_sizes(outcome: Outcome, sizes: Sequence[int]) -> dict[str, Any]:
    return {"algorithm": outcome.algorithm, "collective": outcome.collective, "world_sizes": list(sizes)}
