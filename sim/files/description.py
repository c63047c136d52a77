"""Networks in files: a few lines of TOML, as ``docs/files.md`` describes them.

    schema = 1
    kind = "switch"                          # ring, nodes, leaf_spine, torus, fat_tree, graph
    description = "what it is"               # optional
    source = "where the numbers are from"    # optional
    bandwidth = "100Gbps"                    # of each link
    efficiency = 0.95                        # optional: the part of it that carries payload
    latency = "2us"

Quantities are as in `sim.units`; bare numbers are bytes per second and seconds.  The fields of each kind
stand in `sim.files.schema`.  The files in ``sim/presets`` are known by their names.

Whatever is wrong comes out as a `NetworkFileError` that names file, line and field.
"""

from __future__ import annotations

import re
import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.errors import NetworkFileError, TopologyError
from sim.files.fields import FieldError, Fields, nearest
from sim.files.graph_tables import LinkClass, LinkTable, NodeTable, RouteTable
from sim.files.hardware_table import ChannelsTable, HardwareTable
from sim.files.schema import KINDS, AnyNetwork
from sim.files.toml_lines import Place, key_lines, line_of
from sim.topology import Topology

MAX_RANKS = 1 << 20
"""The most ranks of a network in a file."""
MAX_LINKS = 1 << 23
"""The most directed links of a regular network."""
MAX_GRAPH_LINKS = 1 << 20
"""The most directed links of a graph, which are held one by one."""
TABLES: Mapping[str | int, type[Fields]] = {
    "class": LinkClass,
    "hardware": HardwareTable,
    "link": LinkTable,
    "node": NodeTable,
    "route": RouteTable,
}
MAX_PROBLEMS = 5
"""So many are reported at once."""


@dataclass(frozen=True)
class NetworkDescription:
    """A network as a file describes it, of a stated size or for any number of ranks.

    Attributes:
        name: of the preset, or of the file without its suffix.
        fields: what the file says.
    """

    name: str
    fields: AnyNetwork

    @property
    def description(self) -> str:
        """What the network is, in a line."""
        return self.fields.description

    @property
    def source(self) -> str:
        """Where its numbers are from."""
        return self.fields.source

    @property
    def kind(self) -> str:
        """What kind of network it is, such as ``switch``."""
        return self.fields.kind

    @property
    def num_ranks(self) -> int | None:
        """The number of ranks that the file states, or None: any number."""
        return self.fields.size

    def topology(self, num_ranks: int | None = None) -> Topology:
        """Return the network for *num_ranks* ranks; they fill nodes in order, the last perhaps partly.

        Args:
            num_ranks: how many; by default as many as the file states.

        Raises:
            TopologyError: an impossible number of ranks, more than 2**20 of them or more than 2**23
                directed links (of a graph 2**20), another number than the file states, or none where it
                states none.
        """
        size = self.fields.size
        ranks = size if num_ranks is None else num_ranks
        if ranks is None:
            raise TopologyError(
                f"num_ranks: the network {self.name} is one of any size; say how many ranks it is to have"
            )
        if size is not None and ranks != size:
            raise TopologyError(
                f"num_ranks: the network {self.name} has {_spell(size)} ranks, not {_spell(ranks)}; its file "
                "states its size, so ask for that"
            )
        most = MAX_GRAPH_LINKS if self.kind == "graph" else MAX_LINKS
        limits = (("ranks", ranks, MAX_RANKS), ("directed links", self.fields.num_links(ranks), most))
        for what, wanted, limit in limits:
            if wanted > limit:
                raise TopologyError(
                    f"num_ranks: the network {self.name} would have {_spell(wanted)} {what}; "
                    f"expected at most {limit}"
                )
        table = self.fields.hardware
        return replace(
            self.fields.topology(ranks, self.name),
            hardware=None if table is None else table.hardware(),
            in_network_reduction=self.fields.in_network_reduction,
        )


def preset_names() -> tuple[str, ...]:
    """Return the names of the networks that come with the package, sorted."""
    files = resources.files("sim").joinpath("presets").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_network(name_or_path: str | PathLike[str]) -> NetworkDescription:
    """Return the preset of that name, or the network that the TOML file at that path describes.

    Raises:
        NetworkFileError: there is neither, or the file is not a correct description; names the
            file, the line and the field, what is allowed and what is nearest.
    """
    name = str(name_or_path)
    if name in preset_names():
        text = resources.files("sim").joinpath("presets", f"{name}.toml").read_text("utf-8")
        return parse_network(text, name, f"preset {name}")
    path = Path(name_or_path)
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        if path.suffix == ".toml" or path.exists():
            raise NetworkFileError(f"{name}: cannot read this network file: {error}") from error
        raise NetworkFileError(
            f"unknown network {name!r}{nearest(name, preset_names())}; "
            f"expected one of {', '.join(preset_names())}, or the path of a .toml file"
        ) from None
    return parse_network(text, path.stem, name)


def parse_network(text: str, name: str, file: str) -> NetworkDescription:
    """Return the network that the TOML document *text* describes.

    Args:
        text: the document.
        name: of the network.
        file: where the text is from, for errors.

    Raises:
        NetworkFileError: as for `load_network`.
    """
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise NetworkFileError(f"{file}: not a TOML file: {_one_line(error)}") from error
    lines = key_lines(text)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        got = f"got {_spell(kind)}{nearest(kind, KINDS)}" if "kind" in content else "it is missing"
        where = _where(("kind",), lines)
        raise NetworkFileError(f"{file}: {where}kind: expected one of {', '.join(KINDS)}; {got}")
    try:
        network = NetworkDescription(name, KINDS[kind].model_validate(content))
        network.topology(1 if network.num_ranks is None else None)
    except ValidationError as error:
        raise NetworkFileError(f"{file}: {_problems(error, content, lines)}") from error
    except FieldError as error:
        where = _where(error.place, lines)
        raise NetworkFileError(f"{file}: {where}{_field(error.place)}: {error}") from error
    except TopologyError as error:
        field = str(error).partition(":")[0]
        raise NetworkFileError(f"{file}: {_where((field,), lines)}{error}") from error
    return network


def _problems(error: ValidationError, content: Mapping[str, Any], lines: Mapping[Place, int]) -> str:
    """Return what pydantic found, in our words."""
    details = error.errors(include_url=False)
    said = [_problem(detail, content, lines) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        said.append(f"and {len(details) - MAX_PROBLEMS} more")
    if any(
        detail["type"] in ("missing", "extra_forbidden") and len(detail["loc"]) == 1 for detail in details
    ):
        kind = content["kind"]
        said.append(f"a network of kind {kind!r} has the fields {', '.join(_fields_of(KINDS[kind]))}")
    return "; ".join(said)


def _problem(detail: Any, content: Mapping[str, Any], lines: Mapping[Place, int]) -> str:
    place = detail["loc"]
    field = _where(place, lines) + _field(place)
    if detail["type"] == "missing":
        return f"{field}: this field is missing"
    if detail["type"] == "extra_forbidden":
        return f"{field}: unknown field{nearest(place[-1], _fields_of(_model(place, content['kind'])))}"
    message = detail["msg"].removeprefix("Value error, ")
    got = "" if detail["type"] == "value_error" else f", got {_spell(detail['input'])}"
    return f"{field}: {message[:1].lower()}{_one_line(message[1:])}{got}"


def _model(place: Place, kind: str) -> type[Fields]:
    """Return the model of the table in which the field *place* stands."""
    if len(place) == 1:
        return KINDS[kind]
    return ChannelsTable if place[0] == "hardware" and len(place) > 2 else TABLES[place[0]]


def _fields_of(model: type[Fields]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _where(place: Place, lines: Mapping[Place, int]) -> str:
    line = line_of(place, lines)
    return "" if line is None else f"line {line}: "


def _field(place: Place) -> str:
    """Return *place* for people, who count tables from 1: ``link 3, bandwidth``."""
    parts: list[str] = []
    for part in place:
        if isinstance(part, int):
            parts[-1] += f" {part + 1}"
        else:
            parts.append(part if re.fullmatch(r"[\w-]{1,80}", part) else _spell(part))
    return ", ".join(parts)


def _spell(value: object) -> str:
    """Return *value* as Python writes it, shortened where it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return "a number of thousands of digits"


def _one_line(message: object) -> str:
    return " ".join(str(message).split())
