"""NCCL's collectives inside a node, as nccl-tests measures them, by the presets' own model."""

from __future__ import annotations

from functools import cache

from benchmarks.lab.predicted.devices import device_name
from benchmarks.lab.predicted.rows import Row
from sim import load_network
from sim.topology.description import NetworkDescription
from testbed.calibration.judge.judging import judge
from testbed.calibration.tables.rows import MeasuredRow, collective_named
from testbed.errors import UsageError

NEEDED = ("gpu", "collective", "gpus", "bytes")
_NETWORKS = {
    "a100": "dgx-a100", "a100-40gb": "dgx-a100", "h100": "dgx-h100", "h200": "dgx-h200",
    "b200": "aws-p6-b200", "b300": "aws-p6-b200", "gb200": "gb200-nvl72", "gb300": "gb200-nvl72",
    "v100": "aws-p3dn",
}  # fmt: skip
"""Networks of nodes of a device."""


def network_name(gpu: str) -> str:
    """Return the network that stands for a node of *gpu*."""
    return _NETWORKS[device_name(gpu)]


def _quietly(description: str, completed: int | None = None) -> None:
    """Say nothing of rows that are predicted."""


@cache
def network_of(name: str) -> NetworkDescription:
    """Return the network of that name, read once."""
    return load_network(name)


def collective_us(row: Row) -> float | None:
    """Return how long the collective of a row takes, in microseconds; None where no model answers.

    Raises:
        UsageError: the collective is not known.
    """
    collective = collective_named(row["collective"])
    if collective is None:
        raise UsageError(f"{row['collective']}: expected a collective, such as all_reduce")
    own = MeasuredRow("table", collective, int(row["bytes"]), 1, int(row["gpus"]), 1.0)
    judged, _ = judge([own], network_of(network_name(row["gpu"])), _quietly)
    return judged[0].predicted * 1e6 if judged else None
