"""``testbed run``: an ordinary training script as the ranks of a cluster, in virtual time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import DegradeLink, FailLink, Jitter, Reroute, TraceFile
from testbed.options.conditions import parse_conditions, parse_faults
from testbed.output.figure import check_plot
from testbed.output.folder import check_writable, document
from testbed.output.table import print_json, stderr_console
from testbed.report.plots.timeline_plot import plot_timeline, timeline_title

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport

EXAMPLES = """\b
Examples:
  testbed run --ranks 4 train.py --epochs 1
  testbed run --ranks 64 --network dgx-h100 --compute h100 train.py --batch-size 32
  testbed run --ranks 8 --straggler 3:2 --trace slow.json train.py
  testbed run --ranks 8 --kill-rank 3@iteration=5 train.py
  testbed run --processes 4 train.py
"""

DEFAULT_NETWORK = "switch-100g"
DEFAULT_RANKS = 8
MAX_RANKS = 4096
"""Ranks are threads."""


@reporting_errors
def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="An ordinary torchrun script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]…", help="What the script is given.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="By default as many as the network's file says, or 8."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help=f"A preset (testbed network) or a network file.  [{DEFAULT_NETWORK}]"
        ),
    ] = None,
    compute: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="How computation takes time: a device (h100, FILE.toml), profile:FILE.json, measured, "
            "measured:0.1 (times so much), or none but what the script charges.",
        ),
    ] = "none",
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Of all-reduce, of each (all_reduce=ring,all_gather=bruck), or auto."
        ),
    ] = "ring",
    jitter: Jitter = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the jitter and of delays.")] = 0,
    straggler: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK:FACTOR", help="A slow rank: 3:2, or late: 3:+1ms. May be repeated."),
    ] = None,
    fail_link: FailLink = None,
    reroute: Reroute = False,
    degrade_link: DegradeLink = None,
    kill_rank: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK@WHEN", help="A rank that dies: 3@iteration=5, or 3@10ms."),
    ] = None,
    delay_messages: Annotated[
        str | None, typer.Option(metavar="TIME", help="Mean of a random delay of each message.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(metavar="RANK|all", help="Which rank's output is shown; all: each line with its rank."),
    ] = "0",
    trace: TraceFile = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the last iteration: what each rank computed, when it waited."
        ),
    ] = None,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is the name of a module, as for python -m.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Run for real: N processes here, our algorithms over Gloo or NCCL."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON; what the script prints goes to stderr.")
    ] = False,
) -> None:
    """Run a training script, unmodified, as many ranks in virtual time, in one process.

    Whatever backend it asks for, its process groups are ours, on a network that is simulated; devices it
    calls cuda are the CPU. It computes real numbers; the times are predicted. Options come before SCRIPT;
    all that follows it is the script's.
    """
    conditions = (
        *parse_conditions(jitter, seed, straggler or (), fail_link or (), reroute, degrade_link or ()),
        *parse_faults(kill_rank or (), delay_messages, seed),
    )
    if processes is not None:
        given = {
            "--ranks": ranks, "--network": network, "--trace": trace, "--json": as_json,
            "--timeline": timeline,
            "--compute": compute != "none", "the conditions": conditions,
        }  # fmt: skip
        if unwanted := [option for option, value in given.items() if value]:
            raise UsageError(f"--processes runs for real, where {unwanted[0]} means nothing: leave it out")
        from testbed.scripts.script_processes import run_processes

        run_processes(script, arguments or [], processes, module=module, algorithm=algorithm)
        return
    if trace is not None:
        check_writable(trace)
    if timeline is not None:
        check_plot(timeline)
    from sim import Trace, load_network
    from testbed.scripts.virtual_script import parse_algorithm, run_script

    description = load_network(network or DEFAULT_NETWORK)
    topology = description.topology(ranks or (DEFAULT_RANKS if description.num_ranks is None else None))
    recorded = Trace({"script": script, "network": topology.name}) if trace or timeline else None
    try:
        report = run_script(
            script,
            arguments or [],
            topology,
            module=module,
            compute=compute,
            algorithm=parse_algorithm(algorithm),
            conditions=conditions,
            heard=output,
            trace=recorded,
            as_json=as_json,
        )
    finally:
        if trace is not None and recorded is not None and recorded.spans:
            recorded.save(trace)
    from testbed.report.virtual import assumptions, print_report

    if timeline is not None and recorded is not None:
        plot_timeline(
            recorded,
            report,
            timeline,
            title=timeline_title(Path(script).name, report),
            note=assumptions(report),
        )
    if as_json:
        _print_json(report, script, topology.digest(), seed if jitter or delay_messages else None)
        return
    sys.stdout.flush()
    console = stderr_console()
    print_report(console, report)
    if trace is not None:
        console.print(f"Trace, for https://ui.perfetto.dev: {trace}", markup=False, soft_wrap=True)
    if timeline is not None:
        console.print(f"Timeline: {timeline}", markup=False, soft_wrap=True)


def _print_json(report: VirtualReport, script: str, digest: str, seed: int | None) -> None:
    from testbed.report.virtual import assumptions

    sys.stderr.flush()
    print_json(
        document(
            method="simulated",
            model=assumptions(report),
            seed=seed,
            topologies={f"{report.network} x {report.num_ranks}": digest},
            script=script,
            **report.to_json(),
        )
    )
