"""Truth of the predictions: the networks that ship, published trainings and steps on this processor.

python -m benchmarks.lab.truth
python -m benchmarks.lab.truth --training --document docs/truth.md
python -m benchmarks.lab.truth --device my_cpu.toml
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.lab.document import renew
from benchmarks.lab.program import program, start
from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.output.folder import check_writable, document
from testbed.output.table import progress
from testbed.pages import Delivery
from testbed.report.far_off import far_off, far_off_all

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.truth
  python -m benchmarks.lab.truth --training --document docs/truth.md
  testbed calibrate --device --output my_cpu.toml && python -m benchmarks.lab.truth --device my_cpu.toml
"""


@reporting_errors
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
    threads: Annotated[
        int, typer.Option(min=1, max=1024, help="--device: threads of the processor that the file is of.")
    ] = 1,
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help="--device: where predictions stand before measuring.")
    ] = Path("predictions.json"),
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew the section of this in a Markdown file."),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Hold predictions against measurements that ship.

    Alone: the networks that ship, against the published measurements that no calibration has seen, and
    against themselves; it ends with 1 where one contradicts itself. --training: what published trainings
    lose to scaling. --scripts: the speed of published trainings, from scripts that are run without data.
    --device: what testbed validate --device measures.
    """
    delivery = Delivery(as_json, html)
    delivery.check()
    if into is not None:
        check_writable(into)
    if training + scripts + (device is not None) > 1:
        raise UsageError("--training, --scripts and --device judge different things: name one of them")
    if scripts:
        of_scripts(into, delivery)
    elif training:
        of_trainings(into, delivery)
    elif device is not None:
        of_device(device, threads, predictions, into, delivery)
    else:
        of_presets(into, delivery)


def of_device(name: str, threads: int, predictions: Path, into: Path | None, delivery: Delivery) -> None:
    """Judge the device *name* by steps that are measured here, predicted in *predictions*."""
    from benchmarks.lab.report.device import device_section
    from sim import load_device
    from testbed.report.device import print_validated, validated_document
    from testbed.truth.computation.validation import number_of_tasks, validate_device

    described = load_device(name)
    check_writable(predictions)
    with progress(number_of_tasks()) as advance:
        found = validate_device(described, threads, predictions, advance)
    if into is not None:
        renew(into, device_section(found))
    delivery.give(
        validated_document(found, predictions),
        lambda console: print_validated(console, found, predictions),
        f"How far are steps that were predicted on {found.device} from those measured here?",
        far_off(found.median_error, found.worst_error, len(found.rows)),
    )


def of_trainings(into: Path | None, delivery: Delivery) -> None:
    """Judge what published trainings lose to scaling; renew the section of the document *into*."""
    from benchmarks.lab.published.training import compared, ring_rate
    from benchmarks.lab.published.training_rows import trainings
    from benchmarks.lab.report.training import print_trainings, trainings_document, trainings_section

    known = [one for one in trainings() if one.role != "left out"]
    rate = ring_rate(one for one in known if one.role == "calibrate")
    with progress(len(known)) as advance:
        found = compared(known, rate, advance)
    if into is not None:
        renew(into, trainings_section(found, rate))
    errors = [one.error for one in found]
    delivery.give(
        trainings_document(found),
        lambda console: print_trainings(console, found),
        "How far is the efficiency that published trainings lost from what is expected?",
        far_off_all(errors, "of efficiency"),
    )


def of_scripts(into: Path | None, delivery: Delivery) -> None:
    """Judge the speed of published trainings, of their scripts; renew the section of the document *into*."""
    from benchmarks.lab.published.scripted import predict, scripted_rows
    from benchmarks.lab.report.scripted import print_scripted, scripted_document, scripted_section

    rows = scripted_rows()
    with progress(len(rows)) as advance:
        found = predict(rows, advance)
    if into is not None:
        renew(into, scripted_section(found))
    errors = [one.error for one in found]
    delivery.give(
        scripted_document(found),
        lambda console: print_scripted(console, found),
        "How far are published trainings of one node from what their scripts are predicted to take?",
        far_off_all(errors),
    )


def of_presets(into: Path | None, delivery: Delivery) -> None:
    """Judge the networks that ship; renew the section of the document *into*.

    Raises:
        typer.Exit: one contradicts itself.
    """
    from benchmarks.lab.published.presets import judge_presets
    from benchmarks.lab.report.presets import presets_document, presets_section, print_presets
    from testbed.report.published import MODEL

    with progress() as advance:
        found = judge_presets(advance)
    if into is not None:
        renew(into, presets_section(found))
    shown = document(method=["closed form", "simulated"], model=MODEL, **presets_document(found))
    others = shown["other_systems"]
    delivery.give(
        shown,
        lambda console: print_presets(console, found),
        "How far are networks that ship from published measurements of systems not used for them?",
        far_off(others["median_error"], others["worst_error"], others["num_rows"]),
    )
    if any(own.contradictions for own in found):
        raise typer.Exit(1)


if __name__ == "__main__":
    start(program(truth, EXAMPLES), "benchmarks.lab.truth")
