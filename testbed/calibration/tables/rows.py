"""Rows of tables of measured collectives, the machines that they are of, and how a row is read.

A table of measurements may leave collective, nodes and ranks to a file of systems beside it: by the name of
the set its collective, ranks, source and hardware; or to options.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from collectives.catalogue.measured_times import MAX_RANKS
from collectives.formats.json_document import parse_json, problems, read_bytes, spell
from collectives.program.contracts import CONTRACTS
from testbed.errors import UsageError
from testbed.options.arguments import TableOptions

NAMES = ("systems.json", "systems.toml", "systems.yaml", "systems.yml")
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

MAX_SECONDS = 1e6
MAX_BYTES = 2**62
MICRO = 1e-6
"""Seconds of what tables call ``us``."""


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


class Hardware(BaseModel):
    """What a system says of its hardware, as far as it is read.

    Attributes:
        gpu: what computes, in words.
        nic: what connects the nodes, in words.
        nodes: how many took part, trays of one NVLink domain among them.
        nics_per_node: network cards of a node; None: unknown.
        intra_gbps_per_gpu: Gb/s of a GPU's links inside its node, one way; None: unknown or none.
        nic_gbps: Gb/s of a network card; None: unknown or none.
    """

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    gpu: str = "unknown"
    nic: str = "unknown"
    nodes: _Count = 1
    nics_per_node: Annotated[int, Field(ge=0, le=1000)] | None = None
    intra_gbps_per_gpu: _Gbps | None = None
    nic_gbps: _Gbps | None = None


class System(BaseModel):
    """A machine, and what was measured on it.

    Attributes:
        collective: that was measured.
        ranks: how many took part, on all nodes.
        source: where the measurements are from.
        hardware: of the machine.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    collective: str
    ranks: _Count
    source: str = ""
    hardware: Hardware = Hardware()

    @model_validator(mode="after")
    def _nodes_are_equally_full(self) -> System:
        if self.ranks % self.num_nodes:
            raise ValueError(
                f"expected equally many ranks on each node, got {self.ranks} on {self.num_nodes}"
            )
        return self

    @property
    def num_nodes(self) -> int:
        """How many nodes took part; trays that switches join to one NVLink domain are one to a collective."""
        return 1 if self.hardware.nics_per_node == 0 else self.hardware.nodes

    @property
    def machine(self) -> str:
        """What is alike of measurements on one kind of machine, in words."""
        hardware = self.hardware
        gpu = hardware.gpu.partition(" (")[0]
        number = hardware.nics_per_node
        cards = f", {number} × {hardware.nic_gbps or 0:g} Gb/s" if number else ""
        return f"{gpu}, {self.ranks // self.num_nodes} a node{cards}"


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
        if collective is None:
            continue
        try:
            found[name] = System.model_validate({**fields, "collective": collective})
        except ValidationError as error:
            raise UsageError(f"{path}: {name}: {problems(error)}") from None
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


def _collective(name: str) -> str:
    if (collective := collective_named(name)) is None:
        raise ValueError(f"expected one of {', '.join(CONTRACTS)}, got {name[:40]!r}")
    return collective


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {number:g}")
    return int(number)


_Whole: TypeAlias = Annotated[float, AfterValidator(_whole)]


class _Fields(BaseModel):
    """What is known of a row, in text or numbers."""

    model_config = ConfigDict(allow_inf_nan=False)

    collective: Annotated[str, AfterValidator(_collective)]
    size_bytes: Annotated[_Whole, Field(ge=0, le=MAX_BYTES)]
    nodes: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    ranks: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    time: Annotated[float, Field(gt=0, le=MAX_SECONDS)]


@dataclass(frozen=True)
class Table:
    """A table that is being read.

    Attributes:
        path: of its file.
        said: what options say of it.
        systems: what a file beside it says of its sets.
        least_ranks: with which a row of it says anything.
    """

    path: Path
    said: TableOptions
    systems: Mapping[str, System] = field(default_factory=dict)
    least_ranks: int = 1

    def where(self, line: int) -> str:
        """Return how errors call a *line*."""
        return f"{self.path}: line {line}"

    def row(self, line: int, unit: float, **found: Any) -> MeasuredRow:
        """Return the row of which *found* is said in *line*; what is not, its system says, else options do.

        Raises:
            UsageError: nothing says it, or it cannot be; names file, line and field.
        """
        where, name = self.where(line), found.get("set") or self.path.stem
        system = self.systems.get(name)
        known = {
            "collective": system.collective if system else self.said.collective,
            "ranks": system.ranks if system else self.said.ranks,
            "nodes": system.num_nodes if system else self.said.nodes,
            **{what: value for what, value in found.items() if value not in (None, "")},
        }
        ranks, per_node = str(known["ranks"]), str(found.get("ranks_per_node"))
        if ranks.isdecimal() and per_node.isdecimal() and not found.get("nodes"):
            known["nodes"] = -(-int(ranks) // max(1, int(per_node)))
        for what in ("collective", "ranks"):
            if known[what] is None:
                raise UsageError(
                    f"{where}: nothing says the {what} of {name}: not the table, no option --{what}, and no "
                    "file of systems beside the table knows it"
                )
        try:
            fields = _Fields.model_validate(
                {**known, "nodes": known["nodes"] or 1, "time": _scaled(found["time"], unit)}
            )
        except ValidationError as error:
            raise UsageError(f"{where}: {problems(error)}") from None
        if fields.ranks % fields.nodes:
            raise UsageError(
                f"{where}: {fields.ranks:g} ranks on {fields.nodes:g} nodes; expected equally many on each: "
                "--nodes"
            )
        if fields.ranks < self.least_ranks:
            raise UsageError(
                f"{where}: one rank alone moved nothing; expected two or more, which nccl-tests has on "
                "several processes if it is built with MPI=1"
            )
        return MeasuredRow(
            name,
            fields.collective,
            int(fields.size_bytes),
            int(fields.nodes),
            int(fields.ranks),
            fields.time,
            found.get("algorithm") or "native",
            line,
        )


def _scaled(time: Any, unit: float) -> Any:
    """Return *time* in seconds, or as it is if it is no number."""
    try:
        return float(time) * unit
    except ValueError:
        return time
