"""Networks that are built here, and how far from what is measured on them predictions are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.lab.document import renew
from benchmarks.lab.program import program, start
from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.output.folder import check_writable
from testbed.output.table import progress
from testbed.pages import Delivery
from testbed.report.far_off import far_off, far_off_all

if TYPE_CHECKING:
    from sim.topology.files.network_file import NetworkFile
    from testbed.truth.calibration.calibration import Calibration

EXAMPLES = """\b
Examples:
  sudo python -m benchmarks.lab.shaped examples/networks/shaped/*.toml
  sudo python -m benchmarks.lab.shaped --incast --document docs/truth.md
"""


@reporting_errors
def shaped(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Network files.")] = None,
    incast: Annotated[
        bool,
        typer.Option(
            "--incast",
            help="Instead of FILEs, a switch with one queue before each port, and what flows that end in one "
            "port get of it.",
        ),
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TCP's shares and software costs, as testbed calibrate found them; by default those of a "
            "plain network that is built and measured first.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where predictions, rows and a picture are left.")
    ] = Path("results/validate"),
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew the section of this in a Markdown file."),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build the network of each FILE on this machine (root, iproute2), and measure what was predicted for it.

    Each host is a network namespace, each link held to its rate by a token bucket; predictions are written
    to a file, whose SHA-256 is printed, before anything is measured, and nothing is left behind. --incast:
    a switch whose ports have one queue for all flows, against the fabric ethernet-tcp, in about five minutes.
    """
    delivery = Delivery(as_json, html)
    delivery.check()
    if incast:
        if files or calibration is not None:
            raise UsageError("--incast goes alone: it builds a switch of its own, of no file")
        of_incast(into, delivery)
        return
    if not files:
        raise UsageError("name at least one network file, such as examples/networks/shaped/*.toml")
    of_shaped(files, calibration, output, into, delivery)


def of_shaped(
    files: list[Path], calibration: Path | None, output: Path, into: Path | None, delivery: Delivery
) -> None:
    """Build the networks of *files* here, and judge what was predicted of them.

    Raises:
        UsageError: two have one name, or one cannot be built.
    """
    from benchmarks.lab.report.shaped import as_document, print_report, section
    from benchmarks.lab.report.truth_plot import plot_truth
    from benchmarks.lab.shaped.built import check_possible
    from benchmarks.lab.shaped.validation import validate as validate_network
    from testbed.output.figure import NOT_INSTALLED, check_plot, has_matplotlib
    from testbed.output.folder import ResultFolder

    networks = [_network(path) for path in files]
    names = [network.name for network in networks]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"several files are called {min(repeated)}; give each a name of its own")
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
            from benchmarks.lab.shaped.plain import calibrate_plain

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
        far_off_all(errors),
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
    from benchmarks.lab.report.incast import incast_document, incast_section, median_error, print_incast
    from benchmarks.lab.shaped.built import check_possible
    from benchmarks.lab.shaped.incast import cases, measure_incast

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
        far_off(median_error(rows), max(map(abs, errors), default=None), len(errors)),
    )


def _network(path: Path) -> NetworkFile:
    """Return the network of the file at *path*, which says how many hosts it has, if it can be built.

    Raises:
        UsageError: it cannot.
    """
    from benchmarks.lab.shaped.plan import plan, wire
    from collectives.errors import NotSupportedError
    from sim.topology.files.network_file import read_network
    from sim.topology.topology import checked

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


if __name__ == "__main__":
    start(program(shaped, EXAMPLES), "benchmarks.lab.shaped")
