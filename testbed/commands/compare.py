"""``testbed compare``: two results beside each other, what was asked and what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import UsageError
from testbed.options.command import command
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed compare before.json after.json
  testbed compare measured.json simulated.json --tolerance 0.1
  testbed compare 100g.json 400g.json --figure efficiency --html compared.html
"""


@command
def compare(
    first: Annotated[Path, typer.Argument(metavar="A")],
    second: Annotated[Path, typer.Argument(metavar="B")],
    tolerance: Annotated[float, typer.Option(min=0.0)] = 1e-6,
    figure: Annotated[str | None, typer.Option(metavar="NAME")] = None,
) -> Result:
    """Hold two results against each other: what was asked differently, and what came out differently.

    A and B are what any command printed with --json. The exit code is 0 where the answers agree, though the
    questions may differ, and 1 where they differ by more than the tolerance.

    Args:
        first: A result: what a command printed with --json.
        second: The result to hold against it.
        tolerance: Relative difference of a figure that counts as none.
        figure: Figure to show side by side; by default a time.
    """
    from testbed.report.compared import chief_figure, compared_result, figures
    from testbed.result.comparison import compare as compared
    from testbed.result.comparison import read_result

    results = read_result(first), read_result(second)
    comparison = compared(*results, tolerance)
    if figure is not None and figure not in figures(comparison):
        raise UsageError(f"--figure {figure}: expected one of {', '.join(figures(comparison)) or 'none'}")
    return compared_result(
        (first, second), results, comparison, figure or chief_figure(comparison), tolerance
    )
