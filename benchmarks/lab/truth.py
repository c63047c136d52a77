"""Truth of the predictions: the networks that ship, published trainings, tables of rows, steps.

python -m benchmarks.lab.truth
python -m benchmarks.lab.truth my_steps.csv my_kernels.csv
python -m benchmarks.lab.truth --training --document docs/truth.md
python -m benchmarks.lab.truth --device my_cpu.toml
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.lab.document import check_section, renew
from benchmarks.lab.program import program, start
from testbed.errors import UsageError
from testbed.options.arguments import DeviceThreads, PredictionsFile
from testbed.options.command import command
from testbed.output.folder import check_writable
from testbed.output.table import progress
from testbed.result import Part, Result

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.truth
  python -m benchmarks.lab.truth gemm.csv ultrascale.csv --sample 200 --seed 1
  python -m benchmarks.lab.truth --training --document docs/truth.md
  testbed calibrate --device --output my_cpu.toml && python -m benchmarks.lab.truth --device my_cpu.toml
"""


@command
def truth(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", help="Tables of measured rows as CSV, anybody's.", show_default=False
        ),
    ] = None,
    training: Annotated[
        bool,
        typer.Option("--training", help="Lost efficiency of published trainings, on one node and several."),
    ] = False,
    scripts: Annotated[
        bool,
        typer.Option(
            "--scripts",
            help="Published trainings of one node, from plain scripts on virtual GPUs; takes many minutes.",
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Steps of three models on this device, measured here."),
    ] = None,
    threads: DeviceThreads = 1,
    predictions: PredictionsFile = Path("predictions.json"),
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="No more rows of each FILE than so many, by default 400, or with --scripts of each script "
            "and device, by default 4; drawn by --seed.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which rows are drawn.")] = 0,
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew the section of this in a Markdown file."),
    ] = None,
) -> Result:
    """Hold predictions against measurements that ship.

    Alone: the networks that ship, against the published measurements that no calibration has seen, and
    against themselves; it ends with 1 where one contradicts itself. --training: what published trainings
    lose to scaling. --scripts: the speed of published trainings, from scripts that are run without data.
    --device: what testbed validate --device measures. FILE: rows that anybody has measured, with the columns
    of a set of benchmarks.lab.predict, which is told by the file's name or its columns; predictions are
    written down, and their SHA-256 is said, before they are compared.
    """
    asked_for = {"scripts": scripts, "training": training, "devices": device is not None, "measured": files}
    names = [name for name, is_asked in asked_for.items() if is_asked]
    if len(names) > 1:
        raise UsageError("FILE, --training, --scripts and --device judge different things: name one of them")
    name = names[0] if names else "published"
    if into is not None:
        check_section(into, name)
    if device is not None:
        result, section = _of_device(device, threads, predictions)
    elif files:
        result, section = _of_tables(files, sample or 400, seed, predictions)
    elif scripts:
        result, section = _of_scripts(sample or 4, seed)
    else:
        result, section = _of_trainings() if training else _of_presets()
    if into is None:
        return result
    renew(into, name, list(section))
    return replace(result, files={"Document": into})


def _of_device(name: str, threads: int, predictions: Path) -> tuple[Result, Iterable[Part]]:
    """Judge the device *name* by steps that are measured here, predicted in *predictions*."""
    from benchmarks.lab.report.device import device_section
    from testbed.commands.validate import judged_device
    from testbed.report.validation import device_result

    found = judged_device(name, threads, predictions)
    return device_result(found, predictions), device_section(found)


def _of_tables(
    files: Sequence[Path], sample: int, seed: int, predictions: Path
) -> tuple[Result, Iterable[Part]]:
    """Judge rows of tables, predicted in *predictions*."""
    from benchmarks.lab.predicted.judging import foretell
    from benchmarks.lab.report.measured import measured_result, measured_section

    check_writable(predictions)
    with progress(len(files)) as advance:
        tables = foretell(files, sample, seed, predictions, advance)
    return measured_result(tables, seed, predictions), measured_section(tables, seed)


def _of_trainings() -> tuple[Result, Iterable[Part]]:
    """Judge what published trainings lose to scaling."""
    from benchmarks.lab.published.training import compared, ring_rate
    from benchmarks.lab.published.training_rows import trainings
    from benchmarks.lab.report.training import trainings_result, trainings_section

    known = [one for one in trainings() if one.role != "left out"]
    rate = ring_rate(one for one in known if one.role == "calibrate")
    with progress(len(known)) as advance:
        found = compared(known, rate, advance)
    return trainings_result(found), trainings_section(found, rate)


def _of_scripts(sample: int, seed: int) -> tuple[Result, Iterable[Part]]:
    """Judge the speed of published trainings, of their scripts."""
    from benchmarks.lab.published.scripted import drawn_rows, predict
    from benchmarks.lab.report.scripted import scripted_result, scripted_section

    rows = drawn_rows(sample, seed)
    with progress(len(rows)) as advance:
        found = predict(rows, advance)
    return replace(scripted_result(found), seed=seed), scripted_section(found, sample, seed)


def _of_presets() -> tuple[Result, Iterable[Part]]:
    """Judge the networks that ship."""
    from benchmarks.lab.published.presets import judge_presets
    from benchmarks.lab.report.presets import presets_result, presets_section

    with progress() as advance:
        found = judge_presets(advance)
    return presets_result(found), presets_section(found)


if __name__ == "__main__":
    start(program(truth, EXAMPLES), "benchmarks.lab.truth")
