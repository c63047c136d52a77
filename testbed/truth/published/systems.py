"""Machines on which collectives were measured: what a table of measurements does not say by itself.

A CSV of measurements may leave collective, nodes and ranks to a file of systems beside it: by the name of
the set its collective, ranks, source and hardware.  Ours, with the sources of all that ships, is
``data/systems.json``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.truth.published.measured_row import collective_named

DATA = Path(__file__).parent / "data"
NAMES = ("systems.json", "systems.toml", "systems.yaml", "systems.yml")
_GBPS = 1e9 / 8


@dataclass(frozen=True)
class System:
    """A machine, and what was measured on it.

    Attributes:
        name: of the set of measurements.
        collective: that was measured.
        num_nodes: how many nodes took part.
        num_ranks: how many ranks on all of them.
        gpu: what computes, in words.
        nic: what connects the nodes, in words.
        intra_bandwidth: bytes/s of a GPU's links inside its node, one way; 0: unknown or none.
        nic_bandwidth: bytes/s of a network card; 0: unknown or none.
        nics_per_node: network cards of a node.
        source: where the measurements are from.
    """

    name: str
    collective: str
    num_nodes: int
    num_ranks: int
    gpu: str
    nic: str
    intra_bandwidth: float
    nic_bandwidth: float
    nics_per_node: int
    source: str

    @property
    def machine(self) -> str:
        """What is alike of measurements on one kind of machine, in words."""
        gpu = self.gpu.partition(" (")[0]
        cards = f", {self.nics_per_node} × {self.nic_bandwidth / _GBPS:g} Gb/s" if self.nics_per_node else ""
        return f"{gpu}, {self.num_ranks // self.num_nodes} a node{cards}"


@cache
def shipped_systems() -> Mapping[str, System]:
    """Return the systems whose measurements ship."""
    return read_systems(DATA / "systems.json")


def systems_beside(table: Path) -> Mapping[str, System]:
    """Return the systems in a file beside *table*, and those that ship.

    Raises:
        UsageError: the file beside it holds something else.
    """
    beside = [table.parent / name for name in NAMES if (table.parent / name).is_file()]
    return {**shipped_systems(), **(read_systems(beside[0]) if beside else {})}


def read_systems(path: Path) -> Mapping[str, System]:
    """Return the systems of collectives that a file lists, by name; those of trainings are passed over.

    Raises:
        UsageError: it cannot be read, or a field is missing or wrong; names file, system and field.
    """
    content = _content(path)
    if not isinstance(content, dict):
        raise UsageError(f"{path}: expected a table of systems by name, got {type(content).__name__}")
    found = {}
    for name, fields in content.items():
        collective = collective_named(str(fields.get("collective", "")))
        if collective is not None:
            try:
                found[name] = _system(name, collective, fields)
            except (KeyError, TypeError, ValueError) as error:
                raise UsageError(f"{path}: {name}: a field is missing or wrong: {error}") from None
    return found


def _content(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".toml":
            return tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: {error}") from None


def _system(name: str, collective: str, fields: Mapping[str, Any]) -> System:
    hardware = fields.get("hardware", {})
    num_ranks, num_nodes = int(fields["ranks"]), int(hardware.get("nodes", 1))
    if hardware.get("nics_per_node") == 0:
        num_nodes = 1  # trays of one NVLink domain, joined by its switches: one node to a collective
    if num_nodes < 1 or num_ranks % num_nodes:
        raise ValueError(f"{num_ranks} ranks on {num_nodes} nodes")
    return System(
        name=name,
        collective=collective,
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        gpu=str(hardware.get("gpu", "unknown")),
        nic=str(hardware.get("nic", "unknown")),
        intra_bandwidth=float(hardware.get("intra_gbps_per_gpu") or 0) * _GBPS,
        nic_bandwidth=float(hardware.get("nic_gbps") or 0) * _GBPS,
        nics_per_node=int(hardware.get("nics_per_node") or 0),
        source=str(fields.get("source", "")),
    )
