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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike

from pydantic import ValidationError

from sim.errors import NetworkFileError, TopologyError
from sim.files.fields import FieldError, Fields, nearest
from sim.files.graph_tables import LinkClass, LinkTable, NodeTable, RouteTable
from sim.files.hardware_table import ChannelsTable, HardwareTable
from sim.files.named import names_in, parse, read
from sim.files.problems import field, fields_of, problems, spell, where
from sim.files.schema import KINDS, AnyNetwork
from sim.files.toml_lines import Place, key_lines
from sim.topology.topology import Topology

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
                f"num_ranks: the network {self.name} has {spell(size)} ranks, not {spell(ranks)}; its file "
                "states its size, so ask for that"
            )
        most = MAX_GRAPH_LINKS if self.kind == "graph" else MAX_LINKS
        limits = (("ranks", ranks, MAX_RANKS), ("directed links", self.fields.num_links(ranks), most))
        for what, wanted, limit in limits:
            if wanted > limit:
                raise TopologyError(
                    f"num_ranks: the network {self.name} would have {spell(wanted)} {what}; "
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
    return names_in("presets")


def load_network(name_or_path: str | PathLike[str]) -> NetworkDescription:
    """Return the preset of that name, or the network that the TOML file at that path describes.

    Raises:
        NetworkFileError: there is neither, or the file is not a correct description; names the
            file, the line and the field, what is allowed and what is nearest.
    """
    return parse_network(*read(name_or_path, "presets", "network", NetworkFileError))


def parse_network(text: str, name: str, file: str) -> NetworkDescription:
    """Return the network that the TOML document *text* describes.

    Args:
        text: the document.
        name: of the network.
        file: where the text is from, for errors.

    Raises:
        NetworkFileError: as for `load_network`.
    """
    content = parse(text, file, NetworkFileError)
    lines = key_lines(text)
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        got = f"got {spell(kind)}{nearest(kind, KINDS)}" if "kind" in content else "it is missing"
        line = where(("kind",), lines)
        raise NetworkFileError(f"{file}: {line}kind: expected one of {', '.join(KINDS)}; {got}")
    try:
        network = NetworkDescription(name, KINDS[kind].model_validate(content))
        network.topology(1 if network.num_ranks is None else None)
    except ValidationError as error:
        said = problems(error, lines, partial(_known, kind=kind), f"a network of kind {kind!r}")
        raise NetworkFileError(f"{file}: {said}") from error
    except FieldError as error:
        line = where(error.place, lines)
        raise NetworkFileError(f"{file}: {line}{field(error.place)}: {error}") from error
    except TopologyError as error:
        line = where((str(error).partition(":")[0],), lines)
        raise NetworkFileError(f"{file}: {line}{error}") from error
    return network


def _known(place: Place, kind: str) -> list[str]:
    """Return the fields of the table in which the field *place* stands."""
    if len(place) == 1:
        return fields_of(KINDS[kind])
    return fields_of(ChannelsTable if place[0] == "hardware" and len(place) > 2 else TABLES[place[0]])
