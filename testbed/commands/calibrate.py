"""``testbed calibrate``: constants of a machine from measurements, as a file that predictions take."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from collectives.formats.whole_file import write_whole
from testbed.calibration.live.live import DEFAULT_SECONDS, LiveRequest, described_here, measured
from testbed.errors import UsageError
from testbed.options.arguments import Port, TableOptions
from testbed.options.command import command
from testbed.options.groups import given, refuse
from testbed.output.folder import check_writable
from testbed.output.table import progress
from testbed.result import Result

if TYPE_CHECKING:
    from testbed.calibration.tables.calibration import TableCalibration

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


@partial(command, draws="the fit of a measured network, and its residuals")
def calibrate(
    table_file: Annotated[Path | None, typer.Option("--from", metavar="FILE")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    network: Annotated[str | None, typer.Option(metavar="NAME|FILE")] = None,
    select: Annotated[str | None, typer.Option(metavar="PATTERNS")] = None,
    *,
    table: TableOptions,
    transport: Literal["gloo", "shm"] = "gloo",
    device: Annotated[bool, typer.Option("--device")] = False,
    types: Annotated[str | None, typer.Option(metavar="LIST")] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024)] = 1,
    seconds: Annotated[float | None, typer.Option(metavar="S")] = None,
    port: Port = None,
) -> Result | None:
    """Find the constants of a machine, and write the file that predicts with them.

    By default: measures the network between processes over Gloo, --ranks of them on this machine (4) or
    those of torchrun, and finds what flows get of links, latencies, and what software takes of each message;
    with --transport shm the memory that processes of one host share.

    From a table: what the library's own collectives take, for --model measured. With --device: what
    kernels take by kind, type and shape, for run --compute FILE; about a minute for each type.

    Args:
        table_file: A table of measured collectives: a log of nccl-tests, bench --json, or CSV.
        output: The network file to write; a folder for several machines.
        network: Take links and hardware of this network over into the file.
        select: Only sets of the table with such names: 'ar_h100_*,ag_*'.
        transport: What carries bytes between processes: gloo, or memory that those of a host share.
        device: Measure kernels on this machine's GPU or processor: a device file.
        types: With --device: float32,bfloat16,float16,float64,tfloat32.
        threads: With --device: threads of the processor that a kernel may use.
        seconds: How long to measure a network, about: 75 s by default.
    """
    if output is not None and table_file is None:
        check_writable(output)  # no folder: there is one file
    if device or table_file is not None:
        own = {"--seconds": seconds, "--port": port, "--transport": transport == "shm"}
        refuse(own, "{} is of a network that is measured; leave it out")
    if device:
        if table_file is not None:
            raise UsageError("calibrate: --device measures this machine, and --from reads a table: name one")
        return _of_device(types, threads, output)
    if table_file is None:
        of_tables = {"--network": network, "--select": select, **given(table, "collective", "nodes")}
        refuse(of_tables, "{} is of a table, which --from names; leave it out")
        refuse({"--types": types}, "{} is of --device; leave it out")
        request = LiveRequest(table.ranks, seconds or DEFAULT_SECONDS, port, transport)
        return _of_network(request, output)
    from testbed.calibration.tables.calibration import calibrations_from
    from testbed.calibration.tables.tables import read_table
    from testbed.report.calibration import curves_result

    rows = read_table(table_file, table)
    with progress() as advance:
        found = calibrations_from(rows, table_file, select=select, network=network, advance=advance)
    return curves_result(table_file, found, _write(found, output))


def _of_network(request: LiveRequest, output: Path | None) -> Result | None:
    """Measure the network between processes, and write its file; return None where rank 0 does."""
    request.check()
    rows = measured(request)
    if rows is None:
        return None

    from testbed.calibration.live.constants import network_toml
    from testbed.calibration.live.result import calibration_of
    from testbed.report.calibration import calibration_result

    name = output.stem if output is not None else "calibration"
    with progress() as advance:
        advance("finding the constants")
        found, fitted = calibration_of(rows, name=name, network=described_here(request.num_ranks))
    if output is not None:
        write_whole(output, network_toml(found))
    return calibration_result(found, fitted, output)


def _of_device(types: str | None, threads: int, output: Path | None) -> Result:
    """Measure this machine's device, and write its file."""
    from testbed.calibration.device.calibration import calibrated, checked_types, this_device
    from testbed.calibration.device.measuring import number_of_calls
    from testbed.report.calibration import device_result

    device = this_device()
    wanted = checked_types(None if types is None else [name.strip() for name in types.split(",")], device)
    with progress(number_of_calls(device, wanted)) as advance:
        found = calibrated(device, wanted, threads, advance)
    if output is not None:
        write_whole(output, found.text)
    return device_result(found, output)


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
