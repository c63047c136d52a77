"""``testbed show``: an algorithm's schedule, drawn as the grid of ranks and steps."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from testbed.options.arguments import CollectiveOf
from testbed.options.command import command
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed show ring --ranks 4
  testbed show tree --collective broadcast --plot tree.svg
  testbed show my_algorithms.py:my_ring --ranks 4
"""

MAX_RANKS = 256


@partial(command, draws="the schedule", suffixes=".svg")
def show(
    algorithm: Annotated[str, typer.Argument(metavar="ALGORITHM|FILE.py:FUNCTION|FILE.xml|FILE.json")],
    ranks: Annotated[int, typer.Option(min=1, max=MAX_RANKS)] = 8,
    collective: CollectiveOf = None,
) -> Result:
    """Draw who sends which chunk to whom, in which step, with the cost and the source.

    The schedule of a wrong program is drawn, too; the fault follows, with exit code 1.

    Args:
        algorithm: A shipped algorithm, a function in a file of your own, MSCCL XML or a schedule.
        ranks: How many ranks.
    """
    from collectives import ProgramError, verify
    from testbed.plots.schedule import schedule_of
    from testbed.report.schedule import fault_result, schedule_result
    from testbed.studies.proofs import choose, root_of

    meant = choose([algorithm], collective)
    chosen = next((own for own in meant if own.collective == "all_reduce"), meant[0])
    root = root_of(chosen, ranks)
    try:
        proof = verify(chosen, ranks, root=root)
    except ProgramError as error:
        return fault_result(chosen, ranks, error)
    schedule = schedule_of(chosen, ranks)
    others = [own.collective for own in meant if own is not chosen]
    return schedule_result(chosen, proof, schedule, others)
