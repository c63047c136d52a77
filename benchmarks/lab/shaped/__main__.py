"""Networks that are built here, and how far from what is measured on them predictions are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.lab.document import check_section, renew
from benchmarks.lab.program import program, start
from testbed.errors import UsageError
from testbed.options.command import command
from testbed.output.table import progress
from testbed.result import Part, Result

if TYPE_CHECKING:
    from sim.topology.description import NetworkDescription
    from testbed.calibration.live.calibration import Calibration

EXAMPLES = """\b
Examples:
  sudo python -m benchmarks.lab.shaped examples/networks/shaped/*.toml
  sudo python -m benchmarks.lab.shaped --incast --document docs/truth.md
"""


@command
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
) -> Result:
    """Build the network of each FILE on this machine (root, iproute2), and measure what was predicted for it.

    Each host is a network namespace, each link held to its rate by a token bucket; predictions are written
    to a file, whose SHA-256 is printed, before anything is measured, and nothing is left behind. --incast:
    a switch whose ports have one queue for all flows, against the fabric ethernet-tcp, in about five minutes.
    """
    if incast and (files or calibration is not None):
        raise UsageError("--incast goes alone: it builds a switch of its own, of no file")
    if not incast and not files:
        raise UsageError("name at least one network file, such as examples/networks/shaped/*.toml")
    name = "incast" if incast else "shaped"
    if into is not None:
        check_section(into, name)
    result, section = _of_incast() if incast else _of_shaped(files or [], calibration, output)
    if into is None:
        return result
    renew(into, name, list(section))
    return replace(result, files={**result.files, "Document": into})


def _of_shaped(files: list[Path], calibration: Path | None, output: Path) -> tuple[Result, Iterable[Part]]:
    """Build the networks of *files* here, and judge what was predicted of them.

    Raises:
        UsageError: two have one name, or one cannot be built.
    """
    from benchmarks.lab.report.shaped import shaped_result, shaped_section
    from benchmarks.lab.report.truth_plot import plot_truth
    from benchmarks.lab.result_folder import ResultFolder
    from benchmarks.lab.shaped.built import check_possible
    from benchmarks.lab.shaped.validation import validate as validate_network
    from testbed.errors import is_installed
    from testbed.output.figure import NOT_INSTALLED, check_plot

    networks = [_network(path) for path in files]
    names = [network.name for network in networks]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"several files are called {min(repeated)}; give each a name of its own")
    check_possible()
    given = None if calibration is None else _read(calibration)
    folder = ResultFolder(output)
    has_plots = is_installed("matplotlib")
    picture = folder.file("predicted_over_measured.png", "all rows, log-log") if has_plots else None
    if picture is not None:
        check_plot(picture)

    with progress() as advance:
        if given is None:
            from benchmarks.lab.shaped.plain import calibrate_plain

            given = calibrate_plain(advance)
            folder.write_json("calibration.json", "what predictions were made with", given.as_json())
        found = []
        for network in networks:
            foretold = folder.file(f"predictions/{network.name}.jsonl", "before measuring")
            found.append(validate_network(network, given, foretold, advance))
            result = shaped_result(found, given)
            folder.write_json("rows.json", "all rows, as --json prints them", result.document())

    if picture is not None:
        plot_truth([row for one in found for row in one.rows], picture)
    else:
        print(f"No picture was drawn: {NOT_INSTALLED}", file=sys.stderr)
    folder.write_manifest()
    pictures = {} if picture is None else {"Picture": picture}
    files_of_it = {**pictures, "Rows": output / "rows.json"}
    return replace(result, files=files_of_it), shaped_section(found, given)


def _of_incast() -> tuple[Result, Iterable[Part]]:
    """Build a switch with one queue before each port, and judge what is foretold of flows that share one.

    Raises:
        UsageError: this process may not build networks.
    """
    from benchmarks.lab.report.incast import incast_result, incast_section
    from benchmarks.lab.shaped.built import check_possible
    from benchmarks.lab.shaped.incast import cases, measure_incast

    check_possible()
    chosen = list(cases())
    with progress(len(chosen)) as advance:
        rows = measure_incast(chosen, advance)
    return incast_result(rows), incast_section(rows)


def _network(path: Path) -> NetworkDescription:
    """Return the network of the file at *path*, which says how many hosts it has, if it can be built.

    Raises:
        UsageError: it cannot.
    """
    from benchmarks.lab.shaped.plan import plan, wire
    from collectives.errors import NotSupportedError
    from sim import load_network

    network = load_network(path)
    if network.num_ranks is None:
        raise UsageError(f"{path}: it is of any size; say num_ranks, the number of hosts to build")
    try:
        plan(wire(network))
    except NotSupportedError as error:
        raise UsageError(f"{path}: {error}") from error
    return network


def _read(path: Path) -> Calibration:
    from testbed.calibration.live.calibration import Calibration

    return Calibration.read(path)


if __name__ == "__main__":
    start(program(shaped, EXAMPLES), "benchmarks.lab.shaped")
