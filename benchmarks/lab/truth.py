"""Truth of the predictions: the networks that ship, published trainings and steps on this processor.

python -m benchmarks.lab.truth
python -m benchmarks.lab.truth --training --document docs/truth.md
python -m benchmarks.lab.truth --device my_cpu.toml
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.lab.document import check_section, renew
from benchmarks.lab.program import program, start
from testbed.errors import UsageError
from testbed.options.annotations import DeviceThreads, PredictionsFile
from testbed.options.command import command
from testbed.output.table import progress
from testbed.result import Part, Result

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.truth
  python -m benchmarks.lab.truth --training --document docs/truth.md
  testbed calibrate --device --output my_cpu.toml && python -m benchmarks.lab.truth --device my_cpu.toml
"""


@command
def truth(
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
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew the section of this in a Markdown file."),
    ] = None,
) -> Result:
    """Hold predictions against measurements that ship.

    Alone: the networks that ship, against the published measurements that no calibration has seen, and
    against themselves; it ends with 1 where one contradicts itself. --training: what published trainings
    lose to scaling. --scripts: the speed of published trainings, from scripts that are run without data.
    --device: what testbed validate --device measures.
    """
    if training + scripts + (device is not None) > 1:
        raise UsageError("--training, --scripts and --device judge different things: name one of them")
    name = "scripts" if scripts else "training" if training else "published" if device is None else "devices"
    if into is not None:
        check_section(into, name)
    if device is not None:
        result, section = _of_device(device, threads, predictions)
    else:
        result, section = {"scripts": _of_scripts, "training": _of_trainings, "published": _of_presets}[
            name
        ]()
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


def _of_scripts() -> tuple[Result, Iterable[Part]]:
    """Judge the speed of published trainings, of their scripts."""
    from benchmarks.lab.published.scripted import predict, scripted_rows
    from benchmarks.lab.report.scripted import scripted_result, scripted_section

    rows = scripted_rows()
    with progress(len(rows)) as advance:
        found = predict(rows, advance)
    return scripted_result(found), scripted_section(found)


def _of_presets() -> tuple[Result, Iterable[Part]]:
    """Judge the networks that ship."""
    from benchmarks.lab.published.presets import judge_presets
    from benchmarks.lab.report.presets import presets_result, presets_section

    with progress() as advance:
        found = judge_presets(advance)
    return presets_result(found), presets_section(found)


if __name__ == "__main__":
    start(program(truth, EXAMPLES), "benchmarks.lab.truth")
