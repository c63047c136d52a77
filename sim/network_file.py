"""Networks in files: a few lines of TOML that describe a network for any number of ranks.

    schema = 1
    kind = "switch"                          # or "ring", or "nodes" with the fields below
    description = "what it is"               # optional
    source = "where the numbers are from"    # optional
    bandwidth = "100Gbps"                    # of each link
    latency = "2us"

    kind = "nodes"
    ranks_per_node = 8
    intra_bandwidth = "450GB/s"
    intra_latency = "300ns"
    nics_per_node = 8
    nic_bandwidth = "400Gbps"
    nic_latency = "1350ns"

Quantities are as in `sim.units`; bare numbers are bytes per second and seconds.  The files in
``sim/presets`` are known by their names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError

from sim.errors import NetworkFileError, TopologyError, UnitError
from sim.topology import Topology
from sim.units import Quantity

AnyQuantity: TypeAlias = Annotated[Quantity, SkipValidation]
"""Left to `sim.units`, which reads it when a topology is made."""


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    schema_version: Literal[1] = Field(alias="schema")
    description: str = ""
    source: str = ""


class _Switch(_Fields):
    kind: Literal["switch"]
    bandwidth: AnyQuantity
    latency: AnyQuantity

    def topology(self, num_ranks: int, name: str) -> Topology:
        return Topology.switch(num_ranks=num_ranks, bandwidth=self.bandwidth, latency=self.latency, name=name)


class _Ring(_Fields):
    kind: Literal["ring"]
    bandwidth: AnyQuantity
    latency: AnyQuantity

    def topology(self, num_ranks: int, name: str) -> Topology:
        return Topology.ring(num_ranks=num_ranks, bandwidth=self.bandwidth, latency=self.latency, name=name)


class _Nodes(_Fields):
    kind: Literal["nodes"]
    ranks_per_node: int = Field(ge=1)
    intra_bandwidth: AnyQuantity
    intra_latency: AnyQuantity
    nics_per_node: int = Field(ge=1)
    nic_bandwidth: AnyQuantity
    nic_latency: AnyQuantity

    def topology(self, num_ranks: int, name: str) -> Topology:
        return Topology.nodes(
            num_nodes=max(1, -(-num_ranks // self.ranks_per_node)),
            ranks_per_node=self.ranks_per_node,
            intra_bandwidth=self.intra_bandwidth,
            intra_latency=self.intra_latency,
            nics_per_node=self.nics_per_node,
            nic_bandwidth=self.nic_bandwidth,
            nic_latency=self.nic_latency,
            num_ranks=num_ranks,
            name=name,
        )


_KINDS: Mapping[str, type[_Switch | _Ring | _Nodes]] = {"switch": _Switch, "ring": _Ring, "nodes": _Nodes}


@dataclass(frozen=True)
class NetworkDescription:
    """A network for any number of ranks.

    Attributes:
        name: of the preset, or of the file without its suffix.
        fields: what the file says.
    """

    name: str
    fields: _Switch | _Ring | _Nodes

    @property
    def description(self) -> str:
        """What the network is, in a line."""
        return self.fields.description

    @property
    def source(self) -> str:
        """Where its numbers are from."""
        return self.fields.source

    def topology(self, num_ranks: int) -> Topology:
        """Return the network for *num_ranks* ranks; they fill nodes in order, the last perhaps partly.

        Raises:
            TopologyError: an impossible number of ranks.
        """
        return self.fields.topology(num_ranks, self.name)


def preset_names() -> tuple[str, ...]:
    """Return the names of the networks that come with the package, sorted."""
    files = resources.files("sim").joinpath("presets").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_network(name_or_path: str | PathLike[str]) -> NetworkDescription:
    """Return the preset of that name, or the network that the TOML file at that path describes.

    Raises:
        NetworkFileError: there is neither, or the file is not a correct description; names the
            file and the field, what is allowed and what is nearest.
    """
    name = str(name_or_path)
    if name in preset_names():
        text = resources.files("sim").joinpath("presets", f"{name}.toml").read_text("utf-8")
        return _parse(text, name, f"preset {name}")
    path = Path(name_or_path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if path.suffix == ".toml" or path.exists():
            raise NetworkFileError(f"{name}: cannot read this network file: {error}") from error
        raise NetworkFileError(
            f"unknown network {name!r}{_nearest(name, preset_names())}; "
            f"expected one of {', '.join(preset_names())}, or the path of a .toml file"
        ) from None
    return _parse(text, path.stem, name)


def _parse(text: str, name: str, file: str) -> NetworkDescription:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NetworkFileError(f"{file}: not a TOML file: {error}") from error
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        got = f"got {kind!r}{_nearest(kind, _KINDS)}" if "kind" in content else "it is missing"
        raise NetworkFileError(f"{file}: kind: expected one of {', '.join(_KINDS)}; {got}")
    model = _KINDS[kind]
    try:
        network = NetworkDescription(name, model.model_validate(content))
        network.topology(1)
    except ValidationError as error:
        allowed = [field.alias or name for name, field in model.model_fields.items()]
        problems = "; ".join(_problem(detail, content, allowed) for detail in error.errors())
        hint = f"a network of kind {kind!r} has the fields {', '.join(allowed)}"
        raise NetworkFileError(f"{file}: {problems}; {hint}") from error
    except (TopologyError, UnitError) as error:
        raise NetworkFileError(f"{file}: {error}") from error
    return network


def _problem(detail: Any, content: Mapping[str, Any], allowed: list[str]) -> str:
    """Return what pydantic found, in our words."""
    field = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return f"{field}: this field is missing"
    if detail["type"] == "extra_forbidden":
        return f"{field}: unknown field{_nearest(field, [name for name in allowed if name not in content])}"
    return f"{field}: {detail['msg'][0].lower()}{detail['msg'][1:]}, got {detail['input']!r}"


def _nearest(name: object, known: Any) -> str:
    matches = get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
