"""Ways of ``testbed validate``: what is judged, by which measurements, and what is shown of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import typer

from testbed.errors import UsageError
from testbed.output.folder import check_writable, document
from testbed.output.table import counted, progress

if TYPE_CHECKING:
    from sim.topology.files.network_file import NetworkFile
    from testbed.pages import Delivery
    from testbed.truth.calibration.calibration import Calibration


def of_table(
    path: Path, name: str, collective: str | None, ranks: int | None, nodes: int | None, delivery: Delivery
) -> None:
    """Judge the network *name* by the measurements of the file at *path*."""
    from sim import load_network
    from testbed.report.published import print_table, table_document
    from testbed.truth.published.judging import judge
    from testbed.truth.published.tables import Said, read_table

    rows = read_table(path, Said(collective, ranks, nodes))
    network = load_network(name)
    with progress(len(rows)) as advance:
        judged, refused = judge(rows, network, advance)
    if not judged:
        raise UsageError(f"{name} predicts none of the {len(rows)} rows of {path}: {refused[0].reason}")
    found = table_document(judged, refused, network.name, str(path))
    delivery.give(
        found,
        lambda console: print_table(console, judged, refused),
        f"How far is {network.name} from what {path.name} measured?",
        _far_off(found["median_error"], found["worst_error"], found["num_rows"]),
    )


def of_device(name: str, threads: int, predictions: Path, into: Path | None, delivery: Delivery) -> None:
    """Judge the device *name* by steps that are measured here, predicted in *predictions*."""
    from sim import load_device
    from testbed.report.device import print_validated, validated_document, validated_section
    from testbed.truth.computation.validation import number_of_tasks, validate_device
    from testbed.truth.document import renew

    described = load_device(name)
    for path in (predictions, into):
        if path is not None:
            check_writable(path)
    with progress(number_of_tasks()) as advance:
        found = validate_device(described, threads, predictions, advance)
    if into is not None:
        renew(into, validated_section(found))
    delivery.give(
        validated_document(found, predictions),
        lambda console: print_validated(console, found, predictions),
        f"How far are steps that were predicted on {found.device} from those measured here?",
        _far_off(found.median_error, found.worst_error, len(found.rows)),
    )


def of_trainings(into: Path | None, delivery: Delivery) -> None:
    """Judge what published trainings lose to scaling; renew the section of the document *into*."""
    from testbed.report.training import print_trainings, trainings_document, trainings_section
    from testbed.truth.document import renew
    from testbed.truth.published.training import compared, ring_rate
    from testbed.truth.published.training_rows import trainings

    if into is not None:
        check_writable(into)
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
        _far_off_all(errors, "of efficiency"),
    )


def of_scripts(into: Path | None, delivery: Delivery) -> None:
    """Judge the speed of published trainings, of their scripts; renew the section of the document *into*."""
    from testbed.report.scripted import print_scripted, scripted_document, scripted_section
    from testbed.truth.document import renew
    from testbed.truth.published.scripted import predict, scripted_rows

    if into is not None:
        check_writable(into)
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
        _far_off_all(errors),
    )


def of_presets(into: Path | None, delivery: Delivery) -> None:
    """Judge the networks that ship; renew the section of the document *into*.

    Raises:
        typer.Exit: one contradicts itself.
    """
    from testbed.report.published import MODEL, presets_document, presets_section, print_presets
    from testbed.truth.document import renew
    from testbed.truth.published.presets import judge_presets

    if into is not None:
        check_writable(into)
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
        _far_off(others["median_error"], others["worst_error"], others["num_rows"]),
    )
    if any(own.contradictions for own in found):
        raise typer.Exit(1)


def of_shaped(
    files: list[Path], calibration: Path | None, output: Path, into: Path | None, delivery: Delivery
) -> None:
    """Build the networks of *files* here, and judge what was predicted of them.

    Raises:
        UsageError: two have one name, or one cannot be built.
    """
    from testbed.output.figure import NOT_INSTALLED, check_plot, has_matplotlib
    from testbed.output.folder import ResultFolder
    from testbed.report.plots.truth_plot import plot_truth
    from testbed.report.shaped import as_document, print_report, section
    from testbed.truth.document import renew
    from testbed.truth.shaped.built import check_possible
    from testbed.truth.shaped.validation import validate as validate_network

    networks = [_network(path) for path in files]
    names = [network.name for network in networks]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"--shaped: several files are called {min(repeated)}; give each a name of its own")
    check_possible()
    given = None if calibration is None else _read(calibration)
    folder = ResultFolder(output)
    picture = folder.file("predicted_over_measured.png", "all rows, log-log") if has_matplotlib() else None
    if picture is not None:
        check_plot(picture)
    if into is not None:
        check_writable(into)

    with progress() as advance:
        if given is None:
            from testbed.truth.shaped.plain import calibrate_plain

            given = calibrate_plain(advance)
            folder.write_json("calibration.json", "what predictions were made with", given.as_json())
        found = []
        for network in networks:
            foretold = folder.file(f"predictions/{network.name}.jsonl", "before measuring")
            found.append(validate_network(network, given, foretold, advance))
            shown = as_document(found, given)
            folder.write_json("rows.json", "all rows, as --json prints them", shown)

    if picture is not None:
        plot_truth([row for one in found for row in one.rows], picture)
    else:
        print(f"No picture was drawn: {NOT_INSTALLED}", file=sys.stderr)
    folder.write_manifest()
    if into is not None:
        renew(into, section(found, given))
    errors = [row.error for one in found for row in one.rows]
    delivery.give(
        shown,
        lambda console: print_report(console, found, given),
        f"How far are predictions from networks that were built here ({', '.join(names)})?",
        _far_off_all(errors),
    )
    if delivery.as_json:
        return
    if picture is not None:
        print(f"Picture: {picture}")
    print(f"Rows: {output / 'rows.json'}")


def of_incast(into: Path | None, delivery: Delivery) -> None:
    """Build a switch with one queue before each port, and judge what is foretold of flows that share one.

    Raises:
        UsageError: this process may not build networks.
    """
    from testbed.report.incast import incast_document, incast_section, median_error, print_incast
    from testbed.truth.document import renew
    from testbed.truth.shaped.built import check_possible
    from testbed.truth.shaped.incast import cases, measure_incast

    check_possible()
    if into is not None:
        check_writable(into)
    chosen = list(cases())
    with progress(len(chosen)) as advance:
        rows = measure_incast(chosen, advance)
    if into is not None:
        renew(into, incast_section(rows))
    errors = [row.error for row in rows if row.case.role == "judges"]
    delivery.give(
        incast_document(rows),
        lambda console: print_incast(console, rows),
        "What do flows that end in one port of a switch get of it?",
        _far_off(median_error(rows), max(map(abs, errors), default=None), len(errors)),
    )


def _far_off(middle: float | None, worst: float | None, number: int, of: str = "of the time") -> str:
    """Return in a sentence how far predictions are off."""
    if middle is None or worst is None:
        return f"No row is large enough to judge by ({counted(number, 'row')})."
    what = "%" if of == "of the time" else "points"
    return (
        f"By {100 * middle:.1f} {what} {of} (median of {counted(number, 'row')}), at worst "
        f"{100 * worst:+.1f} {what}."
    )


def _far_off_all(errors: Sequence[float], of: str = "of the time") -> str:
    """Return in a sentence how far predictions with these *errors* are off."""
    if not errors:
        return _far_off(None, None, 0)
    return _far_off(median(map(abs, errors)), max(errors, key=abs), len(errors), of)


def _network(path: Path) -> NetworkFile:
    """Return the network of the file at *path*, which says how many hosts it has, if it can be built.

    Raises:
        UsageError: it cannot.
    """
    from collectives.errors import NotSupportedError
    from sim.topology.files.network_file import read_network
    from sim.topology.topology import checked
    from testbed.truth.shaped.plan import plan, wire

    network = checked(read_network(path))
    if network.fields.size is None:
        raise UsageError(f"{path}: it is of any size; say num_ranks, the number of hosts to build")
    try:
        plan(wire(network))
    except NotSupportedError as error:
        raise UsageError(f"{path}: {error}") from error
    return network


def _read(path: Path) -> Calibration:
    from testbed.truth.calibration.calibration import Calibration

    return Calibration.read(path)
