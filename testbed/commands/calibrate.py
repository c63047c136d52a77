"""``testbed calibrate``: constants of a machine from measurements, as a file that predictions take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError, reporting_errors
from testbed.options.arguments import MAX_RANKS
from testbed.output.folder import check_writable, document
from testbed.output.table import percent, print_json, progress, stdout_console, table
from testbed.report.calibration import calibrate_network
from testbed.truth.calibration.live import DEFAULT_SECONDS, LiveRequest

if TYPE_CHECKING:
    from testbed.truth.published.calibration import TableCalibration

EXAMPLES = """\b
Examples:
  testbed calibrate --ranks 4 --output mine.toml --plot mine.png
  testbed calibrate --transport shm --ranks 2 --output host.toml
  torchrun --nnodes 2 --nproc-per-node 2 … --no-python testbed calibrate --output mine.toml
  testbed calibrate --from nccl-tests.log --output mine.toml
  testbed calibrate --from rows.csv --network dgx-h100 --output mine.toml
  testbed calibrate --device --output my_cpu.toml
  testbed simulate native --model measured --network mine.toml --ranks 16 --nbytes 1K-1G
"""

MODEL = (
    "the least of three lines (latency + size / bandwidth) for each collective and number of nodes, times "
    "what was measured beside it; errors are of sizes that were left out of the fit"
)

DEVICE_MODEL = (
    "a kernel takes a launch and then its arithmetic or bytes at a rate that depends on its kind, type and "
    "shape; each time is the fastest of several rounds"
)


class Carrier(StrEnum):
    """What carries the bytes of a network that is measured."""

    GLOO = "gloo"
    SHM = "shm"


@reporting_errors
def calibrate(
    table_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A table of measured collectives: a log of nccl-tests, bench --json, or CSV.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The network file to write; a folder for several machines."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Take links and hardware of this network over into the file."),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(metavar="PATTERNS", help="Only sets of the table with such names: 'ar_h100_*,ag_*'."),
    ] = None,
    collective: Annotated[
        str | None, typer.Option(metavar="NAME", help="What was measured, where the table does not say.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_RANKS, help="Ranks to measure, 4 by default; with --from: where it does not say."
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="On how many nodes, where the table does not say."),
    ] = None,
    transport: Annotated[
        Carrier,
        typer.Option(
            help="What carries bytes between processes: gloo, or memory that those of a host share."
        ),
    ] = Carrier.GLOO,
    device: Annotated[
        bool,
        typer.Option("--device", help="Measure kernels on this machine's GPU or processor: a device file."),
    ] = False,
    types: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="With --device: float32,bfloat16,float16,float64,tfloat32."),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(min=1, max=1024, help="With --device: threads of the processor that a kernel may use."),
    ] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="How long to measure a network, about: 75 s by default."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a measured network's fit and residuals: .png, .svg or .pdf."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Where the ranks meet; by default one that is free.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the constants of a machine, and write the file that predicts with them.

    By default: measures the network between processes over Gloo, its own on this machine or those of
    torchrun, and finds what flows get of links, latencies, and what software takes of each message; with
    --transport shm the memory that processes of one host share.

    From a table: what the library's own collectives take, for --model measured. With --device: what
    kernels take by kind, type and shape, for run --compute FILE; about a minute for each type.
    """
    if device or table_file is not None:
        shm = Carrier.SHM if transport is Carrier.SHM else None
        _refuse("of a network that is measured", seconds=seconds, plot=plot, port=port, transport=shm)
    if device:
        if table_file is not None:
            raise UsageError("calibrate: --device measures this machine, and --from reads a table: name one")
        _calibrate_device(types, threads, output, as_json=as_json)
        return
    if table_file is None:
        of_tables = {"network": network, "select": select, "collective": collective, "nodes": nodes}
        _refuse("of a table, which --from names", **of_tables)
        _refuse("of --device", types=types)
        request = LiveRequest(ranks, seconds or DEFAULT_SECONDS, port, transport)
        calibrate_network(request, output, plot, as_json=as_json)
        return
    from testbed.truth.published.calibration import calibrations_from
    from testbed.truth.published.tables import Said, read_table

    rows = read_table(table_file, Said(collective, ranks, nodes))
    _check_output(output)
    with progress() as advance:
        found = calibrations_from(rows, table_file, select=select, network=network, advance=advance)
    written = _write(found, output)

    if as_json:
        print_json(
            document(
                method="measured",
                model=MODEL,
                table=str(table_file),
                written=[str(path) for path in written],
                machines=[own.as_json() for own in found],
            )
        )
        return
    _print(found, written)


def _refuse(whose: str, **options: object) -> None:
    """Refuse *options* that are given and belong to another way to calibrate."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name} is {whose}; leave it out")


def _calibrate_device(types: str | None, threads: int, output: Path | None, *, as_json: bool) -> None:
    """Measure this machine's device, and write its file."""
    from testbed.truth.calibration.device.calibration import (
        calibrated,
        calls_of,
        checked_types,
        this_device,
    )

    if output is not None:
        check_writable(output)
    device = this_device()
    wanted = checked_types(None if types is None else [name.strip() for name in types.split(",")], device)
    with progress(calls_of(device, wanted)) as advance:
        found = calibrated(device, wanted, threads, advance)
    if output is not None:
        write_whole(output, found.text)

    if as_json:
        written = [] if output is None else [str(output)]
        print_json(document(method="measured", model=DEVICE_MODEL, written=written, **found.as_json()))
        return
    from testbed.report.device import print_device

    print_device(found, output)


def _check_output(output: Path | None) -> None:
    if output is not None and not output.is_dir():
        check_writable(output)


def _write(found: list[TableCalibration], output: Path | None) -> list[Path]:
    """Write each machine's network file; return where."""
    if output is None:
        return []
    if output.is_dir():
        paths = [output / f"{own.name}.toml" for own in found]
    elif len(found) > 1:
        names = "; ".join(f"{own.machine}: {', '.join(own.systems)}" for own in found)
        raise UsageError(
            f"--output {output}: the table is of {len(found)} machines: {names}. Name a folder, or choose "
            "one with --select"
        )
    else:
        paths = [output]
    for own, path in zip(found, paths, strict=True):
        write_whole(path, own.text)
    return paths


def _print(found: list[TableCalibration], written: list[Path]) -> None:
    console = stdout_console()
    for own in found:
        console.print(f"{own.machine}: {', '.join(own.systems)}", style="bold", markup=False, soft_wrap=True)
        rows = [
            (
                fit.curve.collective,
                f"{fit.curve.num_nodes} × {fit.curve.ranks_per_node}",
                str(fit.num_rows),
                "  ".join(
                    f"{line.latency_ps / 1e6:.3g} µs + n / {line.bandwidth / 1e9:.3g} GB/s"
                    for line in fit.curve.lines
                ),
                *(("–" if error is None else percent(error)) for error in own.left_out_errors(fit)),
                f"{percent(fit.curve.spread)}, {percent(fit.curve.spread_large)}",
            )
            for fit in own.fits
        ]
        heads = (
            "collective",
            "nodes",
            "rows",
            "least of",
            "error\n< 64 KiB",
            "\n- 16 MiB",
            "\n- 1 GiB",
            "\nabove",
            "spread",
        )
        console.print(table(heads, rows, text_columns=4))
    console.print(
        "Error: median of sizes that were left out. Spread: nine of ten lie within, below and from 16 MiB.",
        style="dim",
        markup=False,
    )
    for path in written:
        console.print(f"Written: {path}", markup=False, soft_wrap=True)
