"""``testbed plan``: from a question about a cluster to an answer, over all its points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collectives.formats.whole_file import write_whole
from testbed.errors import reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.groups import grouped
from testbed.options.planning import QuestionOptions, SweepOptions
from testbed.output.folder import check_writable
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
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Answer a question about a cluster: time, cost and what limits each design.

    Models, networks with other values of single fields, ranks, strategies and algorithms: every combination
    is worked out, on all cores or a cluster's, and only what is not known already. A question is a file, or
    options for the common case.
    """
    from testbed.pages import check_page
    from testbed.planning import plan as answered
    from testbed.planning.question import question_of, read_question

    if question is None:
        wanted = question_of(asked.content(), "plan")
    else:
        asked.check_against(question)
        wanted = read_question(question)
    if csv is not None:
        check_writable(csv)
    check_page(html)
    found = answered(
        wanted,
        explain=explain,
        workers=sweeps.workers,
        scheduler=sweeps.scheduler,
        cache=sweeps.cache,
        watch=progress,
    )
    from testbed.report import planning as report
    from testbed.report.csv_rows import csv_text

    whole = report.plan_document(found)
    if csv is not None:
        write_whole(csv, csv_text(found.rows))
    if html is not None:
        from testbed.pages import Recorder, write_page
        from testbed.pages.of_plan import plan_page

        recorder = Recorder()
        report.print_plan(recorder, found, with_answer=False)
        write_page(html, plan_page(found, whole, recorder.parts()))
    if as_json:
        print_json(whole)
        return
    console = stdout_console()
    report.print_plan(console, found)
    for said, path in (("Rows", csv), ("Page", html)):
        if path is not None:
            console.print(f"{said}: {path}", markup=False)
