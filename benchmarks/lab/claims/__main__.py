"""Claims of texts on data-parallel training, put to the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.lab.claims.catalogue import TRIALS, chosen
from benchmarks.lab.claims.page import cases_of, page
from benchmarks.lab.document import check_section, renew
from benchmarks.lab.program import program, start
from testbed.options.command import command
from testbed.output.folder import versions
from testbed.output.table import counted, progress
from testbed.result import Part, Result, Rows, Text, asked, found, quiet

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
COLUMNS = (*asked("id", "claim", "setup", "method", "rule"), *found("figure", "verdict", "note", "cases"))


@command
def claims(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM]…", help="C1 to C14; all by default.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew the section of this in a Markdown file."),
    ] = None,
) -> Result:
    """Put claims about data-parallel training to the test.

    Fourteen figures that introductory texts pass on: each is simulated or measured in several
    set-ups, and holds, holds only in some, or does not. A claim that does not hold is a finding, not a
    failure.
    """
    names = chosen(only or [])
    if into is not None:
        check_section(into, "claims")
    rows = []
    with progress(len(names)) as advance:
        for done, name in enumerate(names):
            claim, trial = TRIALS[name]
            advance(f"{name}: {claim.text[:60]}", completed=done)
            rows.append(trial().row())
    if into is not None:
        renew(into, "claims", list(page(rows, versions())))
    verdicts = Counter(row["verdict"].partition(" if")[0] for row in rows)
    said = ", ".join(f"{number} {what}" for what, number in verdicts.items())
    return Result(
        question="Do claims about data-parallel training hold?",
        answer=f"Of {counted(len(rows), 'claim')}: {said}.",
        method=["simulated", "measured", "closed form"],
        model=MODEL,
        rows=Rows(COLUMNS, rows),
        parts=list(_parts(rows)),
        files={} if into is None else {"Document": into},
    )


def _parts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    for row in rows:
        yield Text([f"    {row['verdict']}"], title=f"{row['id']}  {row['claim']}")
        yield cases_of(row)
        notes = [row["note"]] if row["note"] else []
        yield quiet(f"Rule: {row['rule']}.", f"Set-up: {row['setup']}.", *notes, gap=False)


if __name__ == "__main__":
    start(program(claims, EXAMPLES), "benchmarks.lab.claims")
