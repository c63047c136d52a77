"""``testbed verify``: proofs of algorithms, without data, for every world size of a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import MAX_COUNT, WORLD_SIZES, parse_ranks
from testbed.options.command import command
from testbed.output.table import counted, progress
from testbed.result import Result
from testbed.tasks.bounds import bounded

if TYPE_CHECKING:
    from collectives.program import Algorithm
    from testbed.studies.proofs import Outcome, Which

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


@command
def verify(
    algorithms: Annotated[
        list[str] | None, typer.Argument(metavar="[ALGORITHM|FILE.py:FUNCTION|FILE.xml|FILE.json]...")
    ] = None,
    ranks: Annotated[str, typer.Option(metavar="LIST", help=WORLD_SIZES)] = "2-64",
    collective: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    budget: Annotated[int | None, typer.Option(min=1, max=MAX_COUNT, metavar="N")] = None,
) -> Result:
    """Prove algorithms right, without data.

    A wrong program ends with exit code 1 and the grid of ranks and steps around the fault.

    Ctrl-C ends it and shows what is proved by then.

    Args:
        algorithms: A shipped algorithm, a function in a file of your own, MSCCL XML or a schedule. By default
            all shipped ones.
        collective: By default every collective that an algorithm is shipped for. A function of your own that
            declares none is proved for all_reduce.
        budget: Leave out proofs that would go through more than about N operations, and say which; by default
            none. 250000 take a second or two.
    """
    from testbed.report.proofs import proofs_result
    from testbed.studies.proofs import choose, prove_wholly, which

    sizes = parse_ranks(ranks)
    if len(sizes) > MAX_SIZES:
        raise UsageError(f"--ranks {ranks}: {len(sizes)} world sizes; at most {MAX_SIZES} are proved at once")
    chosen = choose(algorithms, collective)
    if budget is None:
        _check_work(chosen, sizes[-1])
    found: dict[Which, Outcome] = {}
    with bounded() as stop, progress(len(chosen) * (len(sizes) + 1)) as advance:
        prove_wholly(chosen, sizes, ranks, advance, budget, found)
    outcomes = [found[which(own)] for own in chosen if which(own) in found]
    stop.check(outcomes, len(chosen), "algorithm")
    if not any(outcome.proofs or outcome.failed_at for outcome in outcomes):
        reason = next((outcome.reason for outcome in outcomes if outcome.refused), None)
        raise UsageError(f"nothing was proved: {reason or f'every proof is over --budget {budget}'}")
    question = f"Are {counted(len(chosen), 'algorithm')} right, for {ranks} ranks?"
    return stop.ended(proofs_result(question, outcomes, budget))


def _check_work(chosen: Sequence[Algorithm], world_size: int) -> None:
    """Check that proofs for *world_size* ranks, if there are many, do not go through too much by far."""
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
