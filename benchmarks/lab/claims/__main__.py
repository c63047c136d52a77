"""Claims of texts on data-parallel training, put to the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from benchmarks.lab.claims.catalogue import TRIALS, chosen
from benchmarks.lab.claims.page import page
from benchmarks.lab.program import program, start
from collectives.formats.whole_file import write_whole
from testbed.errors import reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.output.folder import check_writable, document, versions
from testbed.output.table import counted, progress, table
from testbed.pages import Delivery

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.claims
  python -m benchmarks.lab.claims C5 C7 C13
  python -m benchmarks.lab.claims --document docs/claims.md --json
"""

MODEL = (
    "simulated steps are profiles replayed through the reducer that trains, by NCCL's model where a preset "
    "has one, else by rings on its links, ideally and with the inefficiencies that are expected of a real "
    "run; measured figures are those of processes of this machine over Gloo"
)


@reporting_errors
def claims(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM]…", help="C1 to C14; all by default.")
    ] = None,
    page_file: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Write the findings as a page of Markdown."),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Put claims about data-parallel training to the test.

    Fourteen figures that introductory texts pass on: each is simulated or measured in several
    set-ups, and holds, holds only in some, or does not. A claim that does not hold is a finding, not a
    failure.
    """
    delivery = Delivery(as_json, html)
    delivery.check()
    names = chosen(only or [])
    if page_file is not None:
        check_writable(page_file)
    rows = []
    with progress(len(names)) as advance:
        for done, name in enumerate(names):
            claim, trial = TRIALS[name]
            advance(f"{name}: {claim.text[:60]}", completed=done)
            rows.append(trial().row())
    if page_file is not None:
        write_whole(page_file, page(rows, versions()))
    verdicts = Counter(row["verdict"].partition(" if")[0] for row in rows)
    delivery.give(
        document(method=["simulated", "measured", "closed form"], model=MODEL, rows=rows),
        lambda console: _print(console, rows),
        "Do claims about data-parallel training hold?",
        f"Of {counted(len(rows), 'claim')}: {', '.join(f'{n} {what}' for what, n in verdicts.items())}.",
    )
    if page_file is not None and not as_json:
        print(f"Page: {page_file}")


def _print(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        console.print(Text.assemble((row["id"], "bold"), f"  {row['claim']}"))
        console.print(f"    {row['verdict']}", style="bold")
        cases = [
            (", ".join(case["where"].values()), case["says"], "yes" if case["holds"] else "no")
            for case in row["cases"]
        ]
        console.print(table(("set-up", "found", "holds"), cases, text_columns=3))
        console.print(f"Rule: {row['rule']}.", style="dim")
        console.print(f"Set-up: {row['setup']}.", style="dim")
        if row["note"]:
            console.print(row["note"], style="dim")
        console.print()


if __name__ == "__main__":
    start(program(claims, EXAMPLES), "benchmarks.lab.claims")
