"""Fields of network files, out of the parameters of the function that makes each kind (`sim.topology.kinds`).

A model holds what is written, in the units of `sim.units`: bandwidths in bytes per second, latencies in
picoseconds.  Beside each bandwidth stands an efficiency: the part of the line rate that is left for
payload (headers, flow control, protocol), 1 unless the file says otherwise; links get the product.  A
sharing table says what several flows, and flows both ways, leave of that product.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, TypeAdapter, create_model

from sim.errors import TopologyError
from sim.files.fields import (
    Bandwidth,
    Count,
    Efficiency,
    Fields,
    SharingTable,
    Size,
    Time,
    Words,
    parts,
    quantity,
)
from sim.files.problems import spell
from sim.topology import parameters
from sim.topology.fabric import FABRICS, FabricName
from sim.topology.files.graph_tables import (
    LinkClassTable,
    LinkTable,
    NodeTable,
    RouteTable,
    Vertices,
    count_links,
    count_ranks,
    named_links,
    static_routes,
)
from sim.topology.files.hardware_table import HardwareTable
from sim.topology.files.measured_table import MeasuredTable
from sim.topology.kinds import KINDS
from sim.topology.layout import NetworkLayout
from sim.topology.sharing_table import SharingArgument
from sim.units import MOST_SPEEDUP, effective, parse_time

MAX_RANKS = 1 << 20
"""The most ranks of a network in a file."""
MAX_LINKS = 1 << 23
"""The most directed links of a regular network."""
MAX_GRAPH_LINKS = 1 << 20
"""The most directed links of a graph, which are held one by one."""

Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
_IN_FILES: Mapping[Any, Any] = {
    parameters.Bandwidth: Bandwidth,
    parameters.Latency: Time,
    parameters.NumBytes: Size,
    parameters.Count: Count,
    parameters.EvenCount: Annotated[Count, Field(multiple_of=2)],
    parameters.Seed: Seed,
    parameters.Ratio: Annotated[float, Field(gt=0, le=1e9)],
    parameters.Speedup: Annotated[float, Field(ge=1, le=MOST_SPEEDUP)],
    parameters.Shape: Annotated[list[Count], Field(min_length=1, max_length=16)],
    FabricName: Literal[tuple(FABRICS)],
    SharingArgument: SharingTable | None,
}
"""What a file has for each sort of parameter."""


class NetworkFields(Fields):
    """What files of all kinds may say."""

    schema_version: Literal[1] = Field(alias="schema")
    description: Words = ""
    source: Words = ""
    in_network_reduction: bool = False
    hardware: HardwareTable | None = None
    measured: list[MeasuredTable] = Field(default=[])
    calibration: dict[str, Any] = Field(default={}, description="what testbed calibrate found")
    if TYPE_CHECKING:  # each kind has a field of this name, which stands in its schema behind these
        kind: str

    @property
    def size(self) -> int | None:
        """Number of ranks that the file states, or None for any number."""
        return self.layout("", None).num_ranks

    def layout(self, name: str, num_ranks: int | None) -> NetworkLayout:
        """Return the layout of the network; *num_ranks* counts where the file states none.

        Raises:
            TopologyError: no such network can be made.
        """
        return KINDS[self.kind](**self.arguments(num_ranks), name=name)

    def arguments(self, num_ranks: int | None) -> dict[str, Any]:
        """Return the arguments of the function that makes the kind: fields by the same names."""
        return {
            name: self._argument(name, hint)
            for name, hint in _parameters(self.kind).items()
            if name in type(self).model_fields
        }

    def _argument(self, name: str, hint: Any) -> Any:
        value = getattr(self, name)
        if value is None:
            return None
        if hint == parameters.Bandwidth:
            return effective(value, getattr(self, _efficiency_of(name)))
        if isinstance(value, SharingTable):
            return parts(value)
        return quantity(value) if parameters.Latency in (hint, *get_args(hint)) else value


class AnySize(NetworkFields):
    """What files may say of kinds that have any number of ranks, unless the file says how many."""

    num_ranks: Count | None = None

    @property
    def size(self) -> int | None:
        """Number of ranks, or None for any number."""
        return self.num_ranks

    def arguments(self, num_ranks: int | None) -> dict[str, Any]:
        """Return the arguments, and *num_ranks*."""
        return super().arguments(num_ranks) | {"num_ranks": num_ranks}


def refuse_above(most: int, wanted: int, what: str, name: str) -> None:
    """Refuse a network that is too large to be built.

    Raises:
        TopologyError: it would have more than *most* of *what*.
    """
    if wanted > most:
        raise TopologyError(
            f"num_ranks: the network {name} would have {spell(wanted)} {what}; expected at most {most}"
        )


class Graph(NetworkFields):
    """Any graph: nodes and links by name."""

    kind: Literal["graph"]
    ranks_per_node: Count = 1
    routing: Literal["shortest", "ecmp"] = "shortest"
    metric: Literal["hops", "latency"] = "hops"
    seed: Seed = 0
    classes: dict[str, LinkClassTable] = Field(default={}, alias="class")
    nodes: list[NodeTable] = Field(min_length=1, alias="node")
    links: list[LinkTable] = Field(default=[], alias="link")
    routes: list[RouteTable] = Field(default=[], alias="route")

    @property
    def size(self) -> int | None:
        """Number of ranks."""
        return count_ranks(self.nodes)

    def layout(self, name: str, num_ranks: int | None) -> NetworkLayout:
        """Return the layout; its directed links, 2**20 at most, are counted before they are listed."""
        refuse_above(MAX_GRAPH_LINKS, count_links(self.links), "directed links", name)
        return super().layout(name, num_ranks)

    def arguments(self, num_ranks: int | None) -> dict[str, Any]:
        """Return the arguments of `sim.topology.kinds.graph.graph`.

        Raises:
            FieldError: a table that does not fit the others.
        """
        vertices = Vertices.of(self.nodes)
        links = list(named_links(self.links, self.classes, [*vertices.ranks, *vertices.switches]))
        return {
            "ranks": vertices.ranks,
            "switches": vertices.switches,
            "links": links,
            "routes": static_routes(self.routes, vertices, links),
            **{name: getattr(self, name) for name in ("ranks_per_node", "routing", "metric", "seed")},
        }


@cache
def model(kind: str) -> type[NetworkFields]:
    """Return the model of files of *kind*."""
    if kind == "graph":
        return Graph
    hints = _parameters(kind)
    defaults = inspect.signature(KINDS[kind]).parameters
    any_size = parameters.NumRanks in hints.values() or parameters.NumRanks | None in hints.values()
    fields: dict[str, Any] = {"kind": Literal[kind]}
    for name, hint in hints.items():
        default = defaults[name].default
        if (name in AnySize.model_fields and any_size) or parameters.Computed in get_args(hint):
            continue
        if default is inspect.Parameter.empty:
            default = ...
        elif hint == parameters.Latency:
            default = parse_time(default)
        fields[name] = (_in_files(hint), default)
        if hint == parameters.Bandwidth:
            fields[_efficiency_of(name)] = (Efficiency, 1.0)
    about = inspect.getdoc(sys.modules[KINDS[kind].__module__]) or ""  # none under python -OO
    title = "".join(word.title() for word in kind.split("_"))
    return create_model(
        title, __base__=AnySize if any_size else NetworkFields, __doc__=about.partition("\n")[0], **fields
    )


@cache
def _parameters(kind: str) -> dict[str, Any]:
    """Return the sort of each parameter of *kind*, but for the name of the network."""
    hints = get_type_hints(KINDS[kind], include_extras=True)
    return {name: hint for name, hint in hints.items() if name not in ("name", "return")}


def _in_files(hint: Any) -> Any:
    """Return the type of a field for a parameter of this sort."""
    if hint in _IN_FILES:
        return _IN_FILES[hint]
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return _union(map(_in_files, get_args(hint)))
    return hint


def _union(types: Iterable[Any]) -> Any:
    """Return the type of what is of any of *types*."""
    return reduce(or_, types)


def _efficiency_of(bandwidth: str) -> str:
    """Return the name of the efficiency beside the field *bandwidth*."""
    return bandwidth.replace("bandwidth", "efficiency")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of network files."""
    any_kind: Any = Annotated[_union(map(model, KINDS)), Field(discriminator="kind")]
    return {"title": "Network", **TypeAdapter[Any](any_kind).json_schema(by_alias=True)}


if __name__ == "__main__":  # writes what docs/network.schema.json holds
    print(json.dumps(json_schema(), indent=1))
