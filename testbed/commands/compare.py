"""``testbed compare``: two results beside each other, what was asked and what came out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.errors import CheckError, UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.output.folder import document

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.comparison import Comparison

EXAMPLES = """\b
Examples:
  testbed compare before.json after.json
  testbed compare measured.json simulated.json --tolerance 0.1
  testbed compare 100g.json 400g.json --figure efficiency --html compared.html
"""

MODEL = (
    "rows are matched by the first fields of the question that tell them apart; "
    "a difference is that of B from A, over A"
)


@reporting_errors
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A result: what a command printed with --json.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The result to hold against it.")],
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Relative difference of a figure that counts as none.")
    ] = 1e-6,
    figure: Annotated[
        str | None, typer.Option(metavar="NAME", help="Figure to show side by side; by default a time.")
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Hold two results against each other: what was asked differently, and what came out differently.

    A and B are what any command printed with --json. The exit code is 0 where the answers agree, though the
    questions may differ, and 1 where they differ by more than the tolerance.
    """
    from testbed.comparison import compare as compared_results
    from testbed.comparison import read_result
    from testbed.pages.delivery import Delivery
    from testbed.report.compared import answer_sentence, chief_figure, figures, show_comparison

    delivery = Delivery(as_json, html)
    delivery.check()
    one, other = read_result(first), read_result(second)
    comparison = compared_results(one, other, tolerance)
    if figure is not None and figure not in figures(comparison):
        raise UsageError(f"--figure {figure}: expected one of {', '.join(figures(comparison)) or 'none'}")
    shown = figure or chief_figure(comparison)
    answer = answer_sentence(comparison, shown)

    def show(console: Console) -> None:
        console.print(answer)
        console.print(f"A: {first}\nB: {second}\n", soft_wrap=True)
        show_comparison(console, comparison, shown)

    delivery.give(
        document(
            method=list(dict.fromkeys((*one.methods, *other.methods))),
            model=MODEL,
            first={"file": str(first), "command": one.command},
            second={"file": str(second), "command": other.command},
            **_as_json(comparison, tolerance),
        ),
        show,
        f"Do {first.name} and {second.name} agree?",
        answer,
    )
    if not comparison.agrees:
        raise CheckError(f"{first} and {second} differ by more than --tolerance {tolerance:g}")


def _as_json(comparison: Comparison, tolerance: float) -> dict[str, Any]:
    def rows(only: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
        return [{"table": table, "row": row} for table, row in only]

    return {
        "tolerance": tolerance,
        "agree": comparison.agrees,
        "figures_compared": comparison.num_compared,
        "rows_matched": len(comparison.pairs),
        "asked_differently": [asdict(own) for own in comparison.question],
        "rows": [asdict(own) for own in comparison.answer],
        "only_in_first": rows(comparison.only_first),
        "only_in_second": rows(comparison.only_second),
    }
