"""``testbed validate``: predictions held against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import DeviceThreads, PredictionsFile, TableOptions
from testbed.options.command import command
from testbed.output.folder import check_writable
from testbed.output.table import progress
from testbed.result import Result

if TYPE_CHECKING:
    from testbed.calibration.judge.steps import ValidatedDevice

EXAMPLES = """\b
Examples:
  testbed validate --table rows.csv --network dgx-h100
  testbed validate --table nccl-tests.log --network mine.toml --json
  testbed calibrate --device --output my_cpu.toml && testbed validate --device my_cpu.toml
"""


@command
def validate(
    table_file: Annotated[Path | None, typer.Option("--table", metavar="FILE")] = None,
    network: Annotated[str | None, typer.Option(metavar="NAME|FILE")] = None,
    *,
    table: TableOptions,
    device: Annotated[str | None, typer.Option(metavar="NAME|FILE")] = None,
    threads: DeviceThreads = 1,
    predictions: PredictionsFile = Path("predictions.json"),
) -> Result:
    """Hold predictions against measurements: what was predicted, what was measured, and how far apart.

    --table: a network against a table of yours. --device: training steps on this machine's processor
    against its device file.

    Args:
        table_file: Measured collectives: a log of nccl-tests, bench --json, or CSV; see --network.
        network: --table: the network that predicts them.
        device: Predict steps of three models on this device, and measure them here.
    """
    if device is not None:
        if table_file is not None or network is not None:
            raise UsageError("--device judges a device file, and --table a network: name one of them")
        from testbed.report.validation import device_result

        return device_result(judged_device(device, threads, predictions), predictions)
    if (table_file is None) != (network is None):
        raise UsageError("--table FILE and --network NAME|FILE go together: what is judged, and by what")
    if table_file is None or network is None:
        raise UsageError(
            "name --table FILE and --network NAME|FILE, or --device FILE; judging the networks that ship "
            "moved: python -m benchmarks.lab.truth, in a checkout"
        )
    from sim import load_network
    from testbed.calibration.judge.judging import judge
    from testbed.calibration.tables.tables import read_table
    from testbed.report.validation import table_result

    rows = read_table(table_file, table)
    described = load_network(network)
    with progress(len(rows)) as advance:
        judged, refused = judge(rows, described, advance)
    if not judged:
        raise UsageError(
            f"{network} predicts none of the {len(rows)} rows of {table_file}: {refused[0].reason}"
        )
    return table_result(judged, refused, described.name, str(table_file))


def judged_device(name: str, threads: int, predictions: Path) -> ValidatedDevice:
    """Return the device *name* beside steps that are measured here, predicted in the file *predictions*."""
    from sim import load_device
    from testbed.calibration.judge.steps import number_of_tasks, validate_device

    described = load_device(name)
    check_writable(predictions)
    with progress(number_of_tasks()) as advance:
        return validate_device(described, threads, predictions, advance)
