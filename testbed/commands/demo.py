"""``testbed demo``: prove, train, predict and show, in a minute."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.extras import how_to_install, is_installed
from testbed.options.command import command
from testbed.output.folder import ResultFolder
from testbed.output.table import percent, progress, seconds
from testbed.report.proofs import LEGEND as PROOF_LEGEND
from testbed.report.proofs import proof_table, proofs_result
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet
from testbed.scripts.training import (
    Check,
    Trained,
    check_training,
    example_script,
    train_processes,
    train_virtual,
)
from testbed.studies.proofs import choose, prove_all

if TYPE_CHECKING:
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
RUNS = (
    *asked("name", "ranks"),
    *found("how", "accuracy", "wall_seconds", "virtual_seconds", "parameters"),
)
NEEDED_BYTES = 16 * 2**20
"""Of the disk, so that no rank finds it full while it writes its part of the results."""


@command
def demo(
    output: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where the results go; files of an earlier demo are replaced."),
    ] = Path("results/demo"),
) -> Result:
    """Prove an algorithm, train with it, predict its time, show the results.

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
    started = time.perf_counter()

    proved, proofs = _prove(folder)
    trained, agreements = _train(folder, script)
    predicted = _predict(folder)
    took = time.perf_counter() - started
    checks = [asdict(check) for check in (*proofs, *agreements)]
    failed = [f"{check['claim']}: {check['found']}" for check in checks if not check["holds"]]
    summary = Result(
        question="Does it prove, train, predict and show what it promises, here?",
        answer=f"Not all of it: {'; '.join(failed)}." if failed else f"All {len(checks)} checks hold.",
        method=["proved", "measured", "simulated"],
        model="; ".join(step.model for step in (proved, trained, predicted)),
        seed=SEED,
        topologies={**predicted.topologies, **trained.topologies},
        assumptions=predicted.assumptions,
        rows=Rows((*asked("claim"), *found("found", "holds")), checks),
        body={"seconds": took, "checks": checks},
        parts=[
            *(part for step in (proved, trained, predicted) for part in step.parts),
            *_traces_and_plot(folder),
            Text([f"Results, with a manifest, in {output}; {took:.0f} s in all."]),
        ],
        failure="; ".join(failed) if failed else None,
    )
    folder.write_manifest(**summary.document())
    documents = {
        "prove": proved.document(),
        "train": trained.document(),
        "predict": predicted.document(),
    }
    return replace(summary, body={**summary.body, "output": str(output), **documents})


def _heading(title: str, what: str) -> Text:
    return Text(title=f"{title}  {what}")


def _prove(folder: ResultFolder) -> tuple[Result, list[Check]]:
    with progress(len(ALGORITHMS) * len(PROVED_RANKS)) as advance:
        outcomes = prove_all(choose(ALGORITHMS, "all_reduce"), PROVED_RANKS, advance)
    heading = _heading("1 Prove", "all-reduce for every world size from 2 to 32, without data")
    result = replace(
        proofs_result(f"Are {', '.join(ALGORITHMS)} right for 2 to 32 ranks?", outcomes, None),
        parts=[heading, proof_table(outcomes), quiet(PROOF_LEGEND)],
    )
    meaning = "the proofs: steps and bytes for each algorithm and world size"
    folder.write_json("prove.json", meaning, result.document())
    checks = [
        Check(
            f"{outcome.algorithm} is proved for every world size",
            outcome.evidence or f"{len(outcome.proofs)} of {outcome.wanted}",
            outcome.failed_at is None,
        )
        for outcome in outcomes
    ]
    return result, checks


def _train(folder: ResultFolder, script: Path) -> tuple[Result, list[Check]]:
    from sim import load_network

    topology = load_network(TRAINING_NETWORK).topology(RANKS)
    runs = _train_three_ways(folder, script, topology)
    checks = check_training(*runs)
    for run, name in zip(runs, ("gloo", "virtual", "single"), strict=True):
        folder.file(f"train/{name}/parameters.pt", f"parameters at the end of {run.name}")
        folder.file(f"train/{name}/metrics.json", f"metrics of {run.name}")

    rows = [{**asdict(run), "parameters": str(run.parameters.relative_to(folder.path))} for run in runs]
    agree = all(check.holds for check in checks)
    what = "a convolutional network on real handwritten digits, in float64; one script, three ways"
    columns = ("", "how", "ranks", "held-out", "wall time", "virtual time")
    result = Result(
        question="Does one script learn the same in processes, on a simulated network and by itself?",
        answer="It does." if agree else "It does not.",
        method=["measured", "simulated"],
        model=(
            f"(a), (c): real time on this machine; (b): virtual time on {TRAINING_NETWORK}, compute "
            "charged as recorded in (c): its data are real and its times simulated"
        ),
        seed=SEED,
        topologies={f"{TRAINING_NETWORK} x {RANKS}": topology.digest()},
        rows=Rows(RUNS, rows),
        body={"runs": rows, "checks": [asdict(check) for check in checks]},
        parts=[
            _heading("2 Train", what),
            Grid(columns, [_training_row(run) for run in runs], text_columns=2),
            Text([f"{'✓' if own.holds else '✗ FAILED'} {own.claim}: {own.found}" for own in checks]),
        ],
    )
    meaning = "accuracy and times of the three runs, and the checks between them"
    folder.write_json("train.json", meaning, result.document())
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


def _predict(folder: ResultFolder) -> Result:
    from testbed.planning.scaling import in_words, points_of_scaling, scaled
    from testbed.report.scaling import LEGEND, scaling_plot, scaling_result, scaling_tables

    points = points_of_scaling(
        [str(folder.path / "digits-profile.json"), "resnet50"],
        NETWORKS,
        STRATEGIES,
        SCALED_RANKS,
        bucket_cap_mb=BUCKET_CAP_MB,
        asked={},
    )
    rows, _ = scaled(points)
    plot = folder.file("scaling.png", "scaling efficiency and exposed communication over ranks")
    scaling_plot(rows, plot)

    what = f"how training would scale, without overlap and with {BUCKET_CAP_MB:g} MB buckets"
    result = replace(
        scaling_result(rows, NETWORKS, {}),
        parts=[
            _heading("3 Predict", what),
            *scaling_tables(rows, SHOWN_RANKS),
            quiet(
                f"{LEGEND} 1, 2, 4 … 1024 ranks are in predict.json.",
                f"Simulated: {in_words(rows)}.",
            ),
        ],
    )
    folder.write_json("predict.json", "iteration time, exposed communication, efficiency", result.document())
    return result


def _traces_and_plot(folder: ResultFolder) -> Iterator[Part]:
    yield _heading("4 Show", "open the traces in https://ui.perfetto.dev or chrome://tracing")
    names = ("scaling.png", "trace-gloo.json", "trace-simulated.json")
    rows = [(str(folder.path / name), folder.files[name]) for name in names]
    yield Grid(("file", "what it shows"), rows, text_columns=2)
