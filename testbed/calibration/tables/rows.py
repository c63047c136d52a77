"""Rows of tables of measured collectives, and the machines that they are of.

A table of measurements may leave collective, nodes and ranks to a file of systems beside it: by the name of
the set its collective, ranks, source and hardware.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collectives.formats.json_document import parse_json, problems, read_bytes, spell
from collectives.program.contracts import CONTRACTS
from testbed.errors import UsageError

NAMES = ("systems.json", "systems.toml", "systems.yaml", "systems.yml")
_GBPS = 1e9 / 8
_Count: TypeAlias = Annotated[int, Field(ge=1, le=2**20)]
_Gbps: TypeAlias = Annotated[float, Field(ge=0, le=1e6)]

_OTHER_NAMES = {
    "alltoall": "all_to_all",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "bcast": "broadcast",
}
"""Other names of collectives, without underscores, and ours."""


@dataclass(frozen=True)
class MeasuredRow:
    """A measured collective.

    Attributes:
        system: name of the set of measurements that it belongs to.
        collective: what was carried out.
        nbytes: size of the buffer, as nccl-tests counts it.
        num_nodes: how many nodes took part.
        num_ranks: how many ranks on all of them.
        seconds: that one call took, out of place.
        algorithm: how; ``native`` is the library's own.
        line: of the table, from 1.
    """

    system: str
    collective: str
    nbytes: int
    num_nodes: int
    num_ranks: int
    seconds: float
    algorithm: str = "native"
    line: int = 0

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return self.num_ranks // self.num_nodes


def collective_named(name: str) -> str | None:
    """Return our name of the collective that a table calls *name*; None: there is none such."""
    plain = name.strip().lower().removesuffix("_perf").replace("-", "_").replace(" ", "_")
    ours = _OTHER_NAMES.get(plain.replace("_", ""), plain)
    return ours if ours in CONTRACTS else None


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


def systems_beside(table: Path) -> Mapping[str, System]:
    """Return the systems in a file beside *table*; none where there is no such file.

    Raises:
        UsageError: the file beside it holds something else.
    """
    beside = [table.parent / name for name in NAMES if (table.parent / name).is_file()]
    return read_systems(beside[0]) if beside else {}


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
        if not isinstance(fields, dict):
            raise UsageError(f"{path}: {name}: expected a table of fields, got {spell(fields)}")
        collective = collective_named(str(fields.get("collective", "")))
        if collective is not None:
            found[name] = _system(path, str(name), collective, fields)
    return found


def _content(path: Path) -> Any:
    content = read_bytes(path, UsageError)
    if path.suffix == ".json":
        return parse_json(content, str(path), UsageError)
    import yaml

    try:
        text = content.decode("utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}") from None


class _Hardware(BaseModel):
    """What ``hardware`` says, as far as it is read."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    gpu: str = "unknown"
    nic: str = "unknown"
    nodes: _Count = 1
    nics_per_node: Annotated[int, Field(ge=0, le=1000)] | None = None
    intra_gbps_per_gpu: _Gbps | None = None
    nic_gbps: _Gbps | None = None


class _Fields(BaseModel):
    """What a system says, as far as it is read."""

    model_config = ConfigDict(strict=True)

    ranks: _Count
    source: str = ""
    hardware: _Hardware = _Hardware()


def _system(path: Path, name: str, collective: str, fields: Mapping[str, Any]) -> System:
    try:
        read = _Fields.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"{path}: {name}: {problems(error)}") from None
    hardware = read.hardware
    # Trays of one NVLink domain, joined by its switches, are one node to a collective.
    num_nodes = 1 if hardware.nics_per_node == 0 else hardware.nodes
    if read.ranks % num_nodes:
        raise UsageError(
            f"{path}: {name}: expected equally many ranks on each node, got {read.ranks} on {num_nodes}"
        )
    return System(
        name=name,
        collective=collective,
        num_nodes=num_nodes,
        num_ranks=read.ranks,
        gpu=hardware.gpu,
        nic=hardware.nic,
        intra_bandwidth=(hardware.intra_gbps_per_gpu or 0) * _GBPS,
        nic_bandwidth=(hardware.nic_gbps or 0) * _GBPS,
        nics_per_node=hardware.nics_per_node or 0,
        source=read.source,
    )
