"""``testbed same``: whether a training is the same on one rank and on several, and where it parts if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import IsModule, Network, Script, ScriptArguments, parse_ranks
from testbed.options.cluster import DEFAULT_NETWORK
from testbed.options.command import command
from testbed.report.sameness import Variant, sameness_result
from testbed.result import Result

if TYPE_CHECKING:
    from collectives.virtual.parameters.record import ParameterRecord

EXAMPLES = """\b
Examples:
  testbed same --ranks 1,2,4 train.py
  testbed same --ranks 1,8 --steps 3 train.py --global-batch-size 64
  testbed same --ranks 4 --vary "--tp 1" "--tp 2" train.py
"""


@command
def same(
    script: Script,
    arguments: ScriptArguments = None,
    ranks: Annotated[str, typer.Option(metavar="LIST")] = "1,2,4",
    steps: Annotated[int, typer.Option(min=1, max=10_000)] = 10,
    tolerance: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1e-4,
    network: Network = DEFAULT_NETWORK,
    module: IsModule = False,
    vary: Annotated[tuple[str, str] | None, typer.Option(metavar="WORDS WORDS")] = None,
) -> Result:
    """Say whether a training is the same on different numbers of ranks, and at which step it first parts.

    The script must divide the same global batch among its ranks: where each rank brings a batch of its own
    size, more ranks are another training. Every run computes in virtual time, in this process; a script's
    output is not shown. Options come before SCRIPT; all that follows it is the script's.

    Args:
        ranks: Numbers of ranks; all are compared with the first.
        steps: Of so many steps, from the first, values are kept.
        tolerance: Relative difference of a parameter that is rounding.
        vary: Compare two runs of one number of ranks instead: of a script that gets the first words besides,
            and the second.
    """
    from collectives.virtual.parameters.comparison import compare

    counts = parse_ranks(ranks)
    if vary is None:
        variants = [Variant(count) for count in counts]
        if len(variants) < 2:
            raise UsageError(f"--ranks {ranks}: expected two numbers of ranks or more, such as 1,2,4")
    elif len(counts) == 1:
        variants = [Variant(counts[0], words) for words in vary]
    else:
        raise UsageError(f"--vary: expected one number of ranks beside it, got --ranks {ranks}")

    records = {
        own: _recorded(script, [*(arguments or []), *own.arguments()], own.ranks, network, module, steps)
        for own in variants
    }
    (first, record), *others = records.items()
    compared = {own: compare(record, other, tolerance) for own, other in others}
    return sameness_result(script, first, compared, tolerance)


def _recorded(
    script: str, arguments: list[str], num_ranks: int, network: str, module: bool, steps: int
) -> ParameterRecord:
    """Run *script* on so many ranks, and return what they have held of their models."""
    from collectives.virtual.parameters.record import ParameterRecord
    from sim import load_network
    from testbed.scripts.rank_output import NOBODY
    from testbed.scripts.script import run_script

    record = ParameterRecord(kept_steps=steps)
    run_script(
        script,
        arguments,
        load_network(network).topology(num_ranks),
        module=module,
        compute="none",
        heard=NOBODY,
        as_json=True,
        algorithm="ring",
        parameters=record,
    )
    return record
