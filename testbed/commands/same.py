"""``testbed same``: whether a training is the same on one rank and on several, and where it parts if not."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.errors import CheckError, UsageError, reporting_errors
from testbed.options.arguments import parse_ranks
from testbed.options.cluster import DEFAULT_NETWORK
from testbed.output.folder import document
from testbed.output.table import counted, print_json, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from collectives.virtual.parameters.comparison import Comparison, Difference
    from collectives.virtual.parameters.record import ParameterRecord

EXAMPLES = """\b
Examples:
  testbed same train.py --ranks 1,2,4
  testbed same train.py --ranks 1,8 --steps 3 -- --global-batch-size 64
"""

MODEL = (
    "gradients of each step and parameters after it, those on which ranks agree, put together from shards: "
    "the norm of the difference over the norm; elements whose gradient is below 1e-6 of the model's largest "
    "are left out as rounding"
)


@reporting_errors
def same(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="An ordinary torchrun script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]…", help="What the script is given.")
    ] = None,
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of ranks; all are compared with the first.")
    ] = "1,2,4",
    steps: Annotated[
        int, typer.Option(min=1, max=10_000, help="Of so many steps, from the first, values are kept.")
    ] = 10,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Relative difference of a parameter that is rounding.")
    ] = 1e-4,
    network: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A preset (testbed network) or a network file.")
    ] = DEFAULT_NETWORK,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is the name of a module, as for python -m.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say whether a training is the same on different numbers of ranks, and at which step it first parts.

    The script must divide the same global batch among its ranks: where each rank brings a batch of its own
    size, more ranks are another training. Every run computes in virtual time, in this process; a script's
    output is not shown.
    """
    counts = parse_ranks(ranks)
    if len({*counts}) < 2:
        raise UsageError(f"--ranks {ranks}: expected two numbers of ranks or more, such as 1,2,4")

    records = {
        count: _recorded(script, arguments or [], count, network, module, steps)
        for count in dict.fromkeys(counts)
    }
    comparisons = _compared(records, tolerance)

    if as_json:
        print_json(
            document(
                method="simulated",
                model=MODEL,
                script=script,
                tolerance=tolerance,
                same=all(own.are_same for own in comparisons.values()),
                rows=[{"ranks": count, **_as_json(own)} for count, own in comparisons.items()],
            )
        )
    else:
        console = stdout_console()
        console.print(_table(counts[0], comparisons))
        for text in dict.fromkeys(text for own in comparisons.values() for text in own.left_out[:3]):
            console.print(f"Left out: {text}", markup=False, soft_wrap=True)
    failures = [text for count, own in comparisons.items() if (text := _failure(counts[0], count, own))]
    if failures:
        raise CheckError("\n".join(failures))


def _recorded(
    script: str, arguments: list[str], num_ranks: int, network: str, module: bool, steps: int
) -> ParameterRecord:
    """Run *script* on so many ranks, and return what they have held of their models."""
    from collectives.virtual.parameters.record import ParameterRecord
    from sim import load_network
    from testbed.scripts.rank_output import NOBODY
    from testbed.scripts.virtual_script import run_script

    record = ParameterRecord(kept_steps=steps)
    run_script(
        script,
        arguments,
        load_network(network).topology(num_ranks),
        module=module,
        compute="none",
        algorithm="ring",
        conditions=(),
        heard=NOBODY,
        trace=None,
        as_json=True,
        options={"parameters": record},
    )
    return record


def _compared(records: dict[int, ParameterRecord], tolerance: float) -> dict[int, Comparison]:
    """Return how every run compares with the first, by number of ranks."""
    from collectives.virtual.parameters.comparison import compare

    (_, first), *others = records.items()
    return {count: compare(first, record, tolerance) for count, record in others}


def _table(first: int, comparisons: dict[int, Comparison]) -> Table:
    columns = ("ranks", f"as on {counted(first, 'rank')}", "in", "difference", "parameters", "steps")
    rows = []
    for count, own in comparisons.items():
        largest = own.largest
        rows.append(
            (
                str(count),
                "same" if own.are_same else "no",
                f"{_what(largest)}, step {largest.step}" if largest and largest.relative else "",
                "" if largest is None else _spell(largest.relative),
                str(own.compared[0]),
                str(own.steps[1]),
            )
        )
    return table(columns, rows, text_columns=3)


def _failure(first: int, count: int, own: Comparison) -> str:
    """Return in words why a run is not the same as the first; nothing if it is."""
    runs = f"{first} and {counted(count, 'rank')}"
    if own.parting is not None:
        where = f" ({own.parting.place})" if own.parting.place else ""
        when = f"in step {own.parting.step}{where}" if own.parting.step else "before the first step"
        why = f"; {own.parting.cause}" if own.parting.cause else ""
        return f"{runs} part {when}: {own.parting.model}, {_what(own.parting)}{_by(own.parting)}{why}"
    if own.largest is None:
        left_out = f": {'; '.join(own.left_out[:3])}" if own.left_out else ""
        return f"{runs}: no parameter could be compared{left_out}"
    if own.steps[0] != own.steps[1]:
        return f"{runs} take {own.steps[0]} and {own.steps[1]} steps; give every run the same global batches"
    return ""


def _what(own: Difference) -> str:
    return f"{'gradient of ' if own.is_gradient else ''}{own.parameter}"


def _spell(relative: float) -> str:
    if not isfinite(relative):
        return "not finite"
    return f"{relative:.1e}" if relative else "0"


def _by(own: Difference) -> str:
    return f", by {own.relative:.1e} of its norm" if isfinite(own.relative) else ""


def _as_json(own: Comparison) -> dict[str, Any]:
    return {
        "same": own.are_same,
        "steps": own.steps[1],
        "steps_of_first": own.steps[0],
        "parameters_compared": own.compared[0],
        "steps_compared": own.compared[1],
        "parting": _difference_as_json(own.parting),
        "largest_difference": _difference_as_json(own.largest),
        "left_out": list(own.left_out),
    }


def _difference_as_json(own: Difference | None) -> dict[str, Any] | None:
    if own is None:
        return None
    return {**asdict(own), "relative": own.relative if isfinite(own.relative) else None}
