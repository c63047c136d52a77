"""``testbed plan``: from a question about a cluster to an answer, over all its points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import reporting_errors
from testbed.options.groups import grouped
from testbed.options.planning import QuestionOptions, SweepOptions
from testbed.output.folder import check_writable, document
from testbed.output.table import print_json, progress, stdout_console

EXAMPLES = """\b
Examples:
  testbed plan question.toml
  testbed plan --profile gpt2-xl --network a.toml --network b.toml --ranks 64,256 --json
  testbed plan --profile gpt2-xl --network dgx-h100 --set nic_bandwidth=100Gbps,400Gbps --set nodes=8,32
  testbed plan --collective all_reduce --nbytes 1M-1G --network dgx-h100 --ranks 64
"""


@reporting_errors
@grouped
def plan(
    question: Annotated[
        Path | None, typer.Argument(metavar="[QUESTION.toml]", help="The question as a file.")
    ] = None,
    *,
    asked: QuestionOptions,
    sweeps: SweepOptions,
    explain: Annotated[
        bool | None,
        typer.Option(
            "--explain/--no-explain",
            help="Whether to find out what designs lose to what, and what would help, by further "
            "predictions; by default of all but scripts.",
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows as CSV, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Answer a question about a cluster: time, cost and what limits each design.

    Models, networks with other values of single fields, ranks, strategies and algorithms: every combination
    is worked out, on all cores or a cluster's, and only what is not known already. A question is a file, or
    options for the common case.
    """
    from testbed.planning import plan as answered
    from testbed.planning.question import question_of, read_question

    if question is None:
        wanted = question_of(asked.content(), "plan")
    else:
        asked.check_against(question)
        wanted = read_question(question)
    if csv is not None:
        check_writable(csv)
    found = answered(
        wanted,
        explain=explain,
        workers=sweeps.workers,
        scheduler=sweeps.scheduler,
        cache=sweeps.cache,
        watch=progress,
    )
    if csv is not None:
        from collectives.formats.whole_file import write_whole
        from testbed.report.planning import csv_text

        write_whole(csv, csv_text(found.rows))
    if as_json:
        print_json(
            document(
                method=sorted({row.method for row in found.rows}),
                model=found.model,
                topologies=found.topologies,
                question=wanted.in_words(),
                answer=found.sentences,
                rows=[row.as_json() for row in found.rows],
                answers=[own.as_json() for own in found.answers],
            )
        )
        return
    from testbed.report import planning as report

    console = stdout_console()
    console.print(wanted.in_words(), style="bold", markup=False)
    console.print()
    for shown in report.shown(found.answers):
        console.print(shown)
    for line in report.problem_lines(found.rows):
        console.print(line, markup=False)
    console.print()
    for line in (*report.legend(found.answers), *report.unknown_lines(found.answers), f"{found.model}."):
        console.print(line, style="dim", markup=False)
    if csv is not None:
        console.print(f"Rows: {csv}", markup=False)
