"""``testbed plan``: from a question about a cluster to an answer, over all its points."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.plan_goodput import GoodputOptions, goodput_of
from testbed.commands.plan_layouts import LayoutOptions, layouts_of
from testbed.errors import UsageError
from testbed.options.arguments import TimeLimit, parse_limit
from testbed.options.command import command
from testbed.options.planning import QuestionOptions, SweepOptions
from testbed.output.table import progress
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed plan question.toml
  testbed plan --profile gpt2-xl --network a.toml --network b.toml --ranks 64,256 --json
  testbed plan --profile gpt2-xl --network dgx-h100 --set nic_bandwidth=100Gbps,400Gbps --set nodes=8,32
  testbed plan --collective all_reduce --nbytes 1M-1G --network dgx-h100 --ranks 64
  testbed plan --goodput --network dgx-h100 --ranks 1024 train.py --steps 3
  testbed plan --layouts --network dgx-h100 --ranks 256 --memory 80GB llama-70b.toml
"""


@partial(command, draws="time and cost, or what else tells designs apart")
def plan(
    question: Annotated[Path | None, typer.Argument(metavar="QUESTION.toml|SCRIPT|MODEL.toml")] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS…")] = None,
    *,
    asked: QuestionOptions,
    sweeps: SweepOptions,
    long: GoodputOptions,
    laid_out: LayoutOptions,
    explain: Annotated[bool | None, typer.Option("--explain/--no-explain")] = None,
    time_limit: TimeLimit = None,
) -> Result:
    """Answer a question about a cluster: time, cost and what limits each design.

    Models, networks with other values of single fields, ranks, strategies and algorithms: every combination
    is worked out, on all cores or a cluster's, and only what is not known already. A question is a file, or
    options for the common case.

    Ctrl-C, or a time limit, ends the search and shows what is there.

    With --goodput: how much of a long training's time counts, what is lost to failures, checkpoints and
    waiting, the best interval between checkpoints, and what would help. All that follows a SCRIPT is the
    script's.

    With --layouts: which layout of a MODEL.toml is best (a file with [model], or llama-70b.toml and others
    that ship), what each family of them costs, and which three to measure first. Of a SCRIPT with options
    for its layout: by runs with few of its own layers.

    Args:
        question: The question as a file, the script that is trained, or the model.
        arguments: What the script is given.
        explain: Whether to find out what designs lose to what, and what would help, by further predictions;
            by default of all but scripts.
    """
    if laid_out.layouts and (long.goodput or explain is not None):
        other = "--goodput" if long.goodput else "--explain"
        raise UsageError(f"{other} and --layouts ask different things: leave one out")
    if laid_out.layouts:
        return layouts_of(question, arguments or [], asked, laid_out, sweeps, time_limit)
    if long.goodput:
        return goodput_of(question, arguments or [], asked, long)
    if arguments or (question is not None and question.suffix == ".py"):
        raise UsageError(
            f"{question} {' '.join(arguments or [])}".rstrip()
            + ": expected one QUESTION.toml; a script with its arguments is for --goodput"
        )
    from testbed.planning import plan as answered
    from testbed.planning.question import question_of, read_question
    from testbed.report.planning import plan_result

    if question is None:
        wanted = question_of(asked.content(), "plan")
    else:
        asked.check_against(question)
        wanted = read_question(question)
    found = answered(
        wanted,
        explain=explain,
        workers=sweeps.workers,
        scheduler=sweeps.scheduler,
        cache=sweeps.cache,
        time_limit=parse_limit(time_limit),
        watch=progress,
    )
    return found.stop.ended(plan_result(found))
