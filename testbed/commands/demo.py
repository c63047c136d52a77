"""``testbed demo``: prove, train, predict and show, in a minute."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from testbed.errors import CheckError, UsageError, reporting_errors
from testbed.extras import how_to_install, is_installed
from testbed.output.folder import ResultFolder, document
from testbed.output.table import percent, print_json, progress, seconds, stdout_console, table
from testbed.report.proofs import LEGEND as PROOF_LEGEND
from testbed.report.proofs import proof_table
from testbed.scripts.training import (
    Check,
    Trained,
    check_training,
    example_script,
    train_processes,
    train_virtual,
)
from testbed.studies.proofs import MODEL as PROOF_MODEL
from testbed.studies.proofs import choose, prove_all, rows_of

if TYPE_CHECKING:
    from rich.console import Console

    from sim import Topology

EXAMPLES = """\b
Examples:
  testbed demo
  testbed demo --output /tmp/demo --json
"""

ALGORITHMS = ("naive", "ring", "tree")
PROVED_RANKS = range(2, 33)
RANKS = 4
TRAINING_NETWORK = "switch-100g"
NETWORKS = ("nvlink-400g", "switch-100g", "ethernet-25g")
STRATEGIES = ("after_backward", "wait_free")
SCALED_RANKS = [1 << exponent for exponent in range(11)]
SHOWN_RANKS = (8, 64, 1024)
BUCKET_CAP_MB = 25.0
SEED = 0
NEEDED_BYTES = 16 * 2**20
"""Of the disk, so that no rank finds it full while it writes its part of the results."""


@reporting_errors
def demo(
    output: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where the results go; files of an earlier demo are replaced."),
    ] = Path("results/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Prove, train, predict, show: the main job.

    Proves all-reduce, trains on real digits over Gloo and over a simulated network, predicts how
    training scales, and leaves traces and a plot. About a minute on two cores.
    """
    missing = [name for name in ("torch", "sklearn", "matplotlib") if not is_installed(name)]
    if missing:
        raise UsageError(how_to_install(f"the demo needs {', '.join(missing)}", "demo"))
    script = example_script()
    folder = ResultFolder(output)
    free = shutil.disk_usage(folder.path).free
    if free < NEEDED_BYTES:
        raise UsageError(f"--output {output}: expected {NEEDED_BYTES} B to be free there, got {free}")
    console = stdout_console(quiet=as_json)
    started = time.perf_counter()

    parts: dict[str, dict[str, Any]] = {}
    parts["prove"], proved = _prove(console, folder)
    parts["train"], held = _train(console, folder, script)
    parts["predict"] = _predict(console, folder)
    _show(console, folder)

    took = time.perf_counter() - started
    checks = [*proved, *held]
    summary = document(
        method=["proved", "measured", "simulated"],
        model="; ".join(part["model"] for part in parts.values()),
        seed=SEED,
        topologies=parts["predict"]["topologies"] | parts["train"]["topologies"],
        seconds=took,
        checks=[asdict(check) for check in checks],
    )
    folder.write_manifest(**summary)
    console.print(f"Results, with a manifest, in {output}; {took:.0f} s in all.")
    if as_json:
        print_json({**summary, "output": str(output), **parts})
    failed = [f"{check.claim}: {check.found}" for check in checks if not check.holds]
    if failed:
        raise CheckError("; ".join(failed))


def _heading(console: Console, title: str, what: str) -> None:
    console.print(Text.assemble((title, "bold"), f"  {what}\n"))


def _check_lines(console: Console, checks: list[Check]) -> None:
    for check in checks:
        mark = ("✓", "green") if check.holds else ("✗ FAILED", "red")
        console.print(Text.assemble(mark, f" {check.claim}: {check.found}"))
    console.print()


def _prove(console: Console, folder: ResultFolder) -> tuple[dict[str, Any], list[Check]]:
    _heading(console, "1 Prove", "all-reduce for every world size from 2 to 32, without data")
    with progress(len(ALGORITHMS) * len(PROVED_RANKS)) as advance:
        outcomes = prove_all(choose(ALGORITHMS, "all_reduce"), PROVED_RANKS, advance)
    console.print(proof_table(outcomes))
    console.print(f"\n{PROOF_LEGEND}\n", style="dim")

    result = document(method="proved", model=PROOF_MODEL, rows=rows_of(outcomes))
    folder.write_json("prove.json", "the proofs: steps and bytes for each algorithm and world size", result)
    checks = [
        Check(
            f"{outcome.algorithm} is proved for every world size",
            outcome.evidence or f"{len(outcome.proofs)} of {outcome.wanted}",
            outcome.failed_at is None,
        )
        for outcome in outcomes
    ]
    return result, checks


def _train(console: Console, folder: ResultFolder, script: Path) -> tuple[dict[str, Any], list[Check]]:
    from sim import load_network

    what = "a convolutional network on real handwritten digits, in float64; one script, three ways"
    _heading(console, "2 Train", what)
    topology = load_network(TRAINING_NETWORK).topology(RANKS)
    processes, virtual, single = _train_three_ways(folder, script, topology)

    runs = [processes, virtual, single]
    checks = check_training(processes, virtual, single)
    columns = ("", "how", "ranks", "held-out", "wall time", "virtual time")
    console.print(table(columns, [_training_row(run) for run in runs], text_columns=2))
    console.print()
    _check_lines(console, checks)

    for run, name in zip(runs, ("gloo", "virtual", "single"), strict=True):
        folder.file(f"train/{name}/parameters.pt", f"parameters at the end of {run.name}")
        folder.file(f"train/{name}/metrics.json", f"metrics of {run.name}")
    result = document(
        method=["measured", "simulated"],
        model=(
            f"(a), (c): real time on this machine; (b): virtual time on {TRAINING_NETWORK}, compute "
            "charged as recorded in (c): its data are real and its times simulated"
        ),
        seed=SEED,
        topologies={f"{TRAINING_NETWORK} x {RANKS}": topology.digest()},
        runs=[{**asdict(run), "parameters": str(run.parameters.relative_to(folder.path))} for run in runs],
        checks=[asdict(check) for check in checks],
    )
    folder.write_json(
        "train.json", "accuracy and times of the three runs, and the checks between them", result
    )
    return result, checks


def _train_three_ways(
    folder: ResultFolder, script: Path, topology: Topology
) -> tuple[Trained, Trained, Trained]:
    """Train (a) in processes over Gloo, (b) on rank threads, with what (c), one process, has recorded."""
    from ddp.profiles import Profile

    options = ["--algorithm", "ring", "--dtype", "float64", "--seed", str(SEED)]
    recorded = folder.file("digits-profile.json", "the backward pass recorded in (c), at the per-rank batch")
    real = folder.file("trace-gloo.json", "one iteration of (a) in real time; open it in Perfetto")
    simulated = folder.file(
        "trace-simulated.json", "one iteration of (b) in virtual time; open it in Perfetto"
    )
    with progress() as advance:
        advance("(a) starting 4 processes")
        processes = train_processes(
            "(a)",
            "Gloo, our ring by point-to-point messages",
            script,
            RANKS,
            folder.path / "train" / "gloo",
            [*options, "--trace", str(real)],
            lambda line: advance(f"(a) {line}"),
        )

        advance("(c) starting one process")
        single = train_processes(
            "(c)",
            "one process, the whole batch",
            script,
            1,
            folder.path / "train" / "single",
            [*options, "--record", str(recorded)],
            lambda line: advance(f"(c) {line}"),
        )

        advance("(b) starting 4 rank threads")
        virtual = train_virtual(
            "(b)",
            f"rank threads on simulated {TRAINING_NETWORK}, the same ring",
            script,
            topology,
            folder.path / "train" / "virtual",
            [*options, "--trace", str(simulated)],
            lambda line: advance(f"(b) {line}"),
            Profile.load(recorded).compute_charges(),
        )
    return processes, virtual, single


def _training_row(run: Trained) -> tuple[str, ...]:
    virtual = "–" if run.virtual_seconds is None else seconds(run.virtual_seconds)
    return run.name, run.how, str(run.ranks), percent(run.accuracy), seconds(run.wall_seconds), virtual


def _predict(console: Console, folder: ResultFolder) -> dict[str, Any]:
    from collectives.timing import Assumptions
    from ddp.profiles import Profile
    from sim import load_network
    from testbed.report.plots.scaling_plot import plot_scaling
    from testbed.report.scaling import LEGEND, scaling_tables
    from testbed.result.terminal import show_part
    from testbed.studies.predict import predict

    what = f"how training would scale, without overlap and with {BUCKET_CAP_MB:g} MB buckets"
    _heading(console, "3 Predict", what)

    profiles = [Profile.load(folder.path / "digits-profile.json"), Profile.bundled("resnet50")]
    with progress(len(profiles) * len(NETWORKS) * len(STRATEGIES) * len(SCALED_RANKS)) as advance:
        scaling = predict(
            profiles,
            [load_network(name) for name in NETWORKS],
            STRATEGIES,
            SCALED_RANKS,
            bucket_cap_mb=BUCKET_CAP_MB,
            algorithm=None,
            advance=advance,
            counts=Assumptions.of_a_real_run,
        )

    for shown in scaling_tables(scaling.points, SHOWN_RANKS):
        show_part(console, shown)
        console.print()
    console.print(f"{LEGEND} 1, 2, 4 … 1024 ranks are in predict.json.", style="dim")
    console.print(f"Simulated: {scaling.model}.\n", style="dim")

    plot = folder.file("scaling.png", "scaling efficiency and exposed communication over ranks")
    title = f"Scaling of data-parallel training: auto, {BUCKET_CAP_MB:g} MiB buckets"
    plot_scaling(scaling.points, plot, title=title, note=f"Simulated: {scaling.model}.")

    result = document(
        method="simulated",
        model=scaling.model,
        topologies=scaling.topologies,
        profiles=[{"name": own.name, "source": own.source, "device": own.device} for own in profiles],
        rows=scaling.rows(),
    )
    folder.write_json("predict.json", "iteration time, exposed communication, efficiency", result)
    return result


def _show(console: Console, folder: ResultFolder) -> None:
    _heading(console, "4 Show", "open the traces in https://ui.perfetto.dev or chrome://tracing")
    names = ("scaling.png", "trace-gloo.json", "trace-simulated.json")
    rows = [(str(folder.path / name), folder.files[name]) for name in names]
    console.print(table(("file", "what it shows"), rows, text_columns=2))
    console.print()
