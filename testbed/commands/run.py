"""``testbed run``: an ordinary training script as the ranks of a cluster, in virtual time."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import IsModule, Script, ScriptArguments, computes_on_gpu
from testbed.options.assumptions import RunAssumptionOptions, assumptions_json
from testbed.options.cluster import (
    DEFAULT_NETWORK,
    CheckOptions,
    ClusterOptions,
    GpuOptions,
    OutputOptions,
    checked,
)
from testbed.options.command import Outputs, command
from testbed.options.conditions import ConditionOptions, FaultOptions
from testbed.options.groups import given, refuse
from testbed.output.table import counted, stderr_console
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed run --ranks 4 train.py --epochs 1
  testbed run --ranks 64 --network dgx-h100 --compute h100 train.py --batch-size 32
  testbed run --fake --ranks 1024 --network dgx-h100 --compute h100 examples/llama.py --model 70b --tp 8
  testbed run --ranks 8 --straggler 3:2 --trace slow.json train.py
  testbed run --ranks 8 --kill-rank 3@iteration=5 train.py
  testbed run --ranks 4 --check replicas train.py
  testbed run --ranks 4 --compute h100 --check races train.py
  testbed run --ranks 3 --orders all train.py
  testbed run --processes 4 train.py
"""

MAX_THREADS = 4096
"""Ranks are threads, but for those that are folded."""


@partial(command, console=stderr_console, draws="the last iteration: what each rank computed, when it waited")
def run(
    script: Script,
    arguments: ScriptArguments = None,
    *,
    cluster: ClusterOptions,
    conditions: ConditionOptions,
    faults: FaultOptions,
    gpu: GpuOptions,
    counts: RunAssumptionOptions,
    shown: OutputOptions,
    outputs: Outputs,
    checks: CheckOptions,
    module: IsModule = False,
    own: Annotated[str | None, typer.Option(metavar="NAME,…")] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N")] = None,
) -> Result:
    """Run a training script, unmodified, as many ranks in virtual time, in one process.

    Whatever backend it asks for, its process groups are ours, on a network that is simulated, and what it
    does on cuda devices is done on the CPU. It computes real numbers; the times are predicted. Options come
    before SCRIPT; all that follows it is the script's.

    Args:
        own: Packages of which each rank gets a copy, as they keep what a process has once; known ones, such
            as accelerate, are copied anyway.
        processes: Run for real: N processes here, our algorithms over Gloo or NCCL.
    """
    held = (*conditions.parse(), *faults.parse(conditions.seed))
    of_one_timed_run = {
        **given(shown, "trace"),
        **given(cluster, "compute", "clock"),
        "--own": own,
        **given(checks, "check", "lenient"),
        "a fault, a straggler or jitter": held,
        **given(gpu),
        **{f"--{name.replace('_', '-')}": value for name, value in counts.asked.items()},
    }
    if processes is not None:
        virtual = {"--ranks": cluster.ranks, "--network": cluster.network, "--orders": checks.orders}
        wanted_too = {"--json": outputs.as_json, **given(outputs, "html", "csv", "plot")}
        means_nothing = "--processes runs for real, where {} means nothing: leave it out"
        refuse({**virtual, **wanted_too, **of_one_timed_run}, means_nothing)
        from testbed.scripts.script_processes import run_processes

        algorithm = cluster.algorithm or "ring"
        run_processes(script, arguments or [], processes, module=module, algorithm=algorithm)
        return _finished(script, processes)

    if checks.orders is not None:
        refuse(of_one_timed_run, "--orders runs at no time, where {} means nothing: leave it out")
        from testbed.scripts.every_order import run_in_every_order

        topology = cluster.topology(ideal=counts.ideal)
        choice = "ring" if cluster.algorithm is None else cluster.choice(topology)
        return run_in_every_order(
            script, arguments or [], topology, choice, module=module, limit=checks.max_orders
        )

    topology = cluster.topology(ideal=counts.ideal)
    if topology.num_ranks > MAX_THREADS and not gpu.folds:
        raise UsageError(
            f"--ranks {topology.num_ranks}: at most {MAX_THREADS} ranks have threads of their own; add "
            "--fake, with which those that do the same run as one"
        )
    from sim import Trace
    from testbed.options import evidence
    from testbed.report.virtual import faster_programs, run_result
    from testbed.scripts.script import DeviceMemoryError, run_script

    proved = evidence.evidence_for([cluster.choice(topology)], evidence.nodes_of(topology))
    on_gpu = computes_on_gpu(cluster.compute)
    assumed = counts.on(topology, on_gpu=on_gpu)
    wanted = any(path is not None for path in (shown.trace, outputs.plot, outputs.html))
    recorded = Trace({"script": script, "network": topology.name}) if wanted else None
    record, races, routing = checks.record(), checks.races(on_gpu and not gpu.fake), gpu.record()
    failure: str | None = None
    try:
        report = run_script(
            script,
            arguments or [],
            topology,
            module=module,
            compute=cluster.compute,
            heard=shown.output,
            as_json=outputs.as_json,
            algorithm=cluster.choice(topology),
            conditions=held,
            trace=recorded,
            assumptions=assumed,
            own=(() if own is None else tuple(name.strip() for name in own.split(","))),
            clock=cluster.clock,
            parameters=record,
            races=races,
            lenient=checks.lenient,
            **gpu.arguments(routing),
        )
    except DeviceMemoryError as error:
        report, failure = error.report, str(error)
    finally:  # the trace of a run that failed shows where it did
        if shown.trace is not None and recorded is not None and recorded.spans:
            recorded.save(shown.trace)

    asked = {**counts.asked, **conditions.asked, "device": _device(cluster.compute)}
    network = cluster.network or DEFAULT_NETWORK
    result = run_result(
        script,
        report,
        topology,
        trace=recorded,
        seed=conditions.seed if conditions.jitter or faults.delay_messages else None,
        assumed=assumptions_json([network], cluster.algorithm, asked, {topology.name: assumed}),
        proved=list(dict.fromkeys((*proved, *evidence.evidence_of_groups(report.carried)))),
        checked=checked(record),
        races=races if checks.check or (races is not None and races.texts) else None,
        faster=[] if outputs.as_json else faster_programs(report, topology),
        failure=failure,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    files = {} if shown.trace is None else {"Trace, for https://ui.perfetto.dev": shown.trace}
    if routing is not None and gpu.record_routing is not None:
        routing.save(gpu.record_routing)
        files["Routing, for --routing"] = gpu.record_routing
    return replace(result, files=files) if files else result


def _finished(script: str, num_processes: int) -> Result:
    """Return that *script* has run for real; what it printed is all there is to be shown."""
    return Result(
        question=f"Does {script} run for real, as {counted(num_processes, 'process', 'processes')}?",
        answer="It has run to its end.",
        method="measured",
        model="processes of this machine, our algorithms over Gloo or NCCL",
    )


def _device(compute: str) -> str | None:
    """Return the device by which computation takes time; None where it takes none, or is measured."""
    return None if compute == "none" or compute.startswith(("measured", "profile:")) else compute
