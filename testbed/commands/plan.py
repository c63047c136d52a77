"""``testbed plan``: from a question about a cluster to an answer, over all its points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import reporting_errors
from testbed.options.groups import grouped
from testbed.options.planning import QuestionOptions, SweepOptions
from testbed.output.folder import document
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Answer a question about a cluster: time, cost and what limits each design.

    Models, networks with other values of single fields, ranks, strategies and algorithms: every combination
    is worked out, on all cores or a cluster's, and only what is not known already. A question is a file, or
    options for the common case.
    """
    from testbed.planning.cache import Cache, default_folder
    from testbed.planning.plan import Plan
    from testbed.planning.points import points_of
    from testbed.planning.question import question_of, read_question
    from testbed.planning.sweep import as_they_are, sweep

    if question is None:
        wanted = question_of(asked.content(), "plan")
    else:
        asked.check_against(question)
        wanted = read_question(question)
    points = points_of(wanted)
    with Cache(sweeps.folder(default_folder())) as cache, progress(len(points)) as advance:
        rows = sweep(
            as_they_are(points),
            cache=cache,
            advance=advance,
            workers=sweeps.workers,
            scheduler=sweeps.scheduler,
        )
    found = Plan(wanted, tuple(rows))
    if as_json:
        print_json(
            document(
                method=sorted({row.method for row in rows}),
                model=found.model,
                topologies=found.topologies,
                question=wanted.in_words(),
                rows=[row.as_json() for row in rows],
            )
        )
        return
    from testbed.report.planning import rows_table

    console = stdout_console()
    console.print(wanted.in_words(), style="bold", markup=False)
    console.print()
    console.print(rows_table(rows))
    console.print(f"\n{found.model}.", style="dim", markup=False)
