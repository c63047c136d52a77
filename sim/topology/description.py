"""Networks by name or from files, as ``docs/files.md`` describes them: topologies of any size.

    schema = 1
    kind = "switch"                          # ring, nodes, leaf_spine, torus, fat_tree, cluster, host, graph
    description = "what it is"               # optional
    source = "where the numbers are from"    # optional
    bandwidth = "100Gbps"                    # of each link
    efficiency = 0.95                        # optional: the part of it that carries payload
    sharing = { one_way = [1.0, 0.98] }      # optional: the part of that which one flow, two, … get
    latency = "2us"

Quantities are as in `sim.units`; bare numbers are bytes per second and seconds.  The fields of each kind
are the parameters of its function in `sim.topology.kinds`.  The files in ``sim/presets`` are known by their
names.

Whatever is wrong comes out as a `NetworkFileError` that names file, line and field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike

from pydantic import ValidationError

from sim.errors import NetworkFileError, TopologyError
from sim.files.fields import FieldError, nearest
from sim.files.named import names_in, parse, read
from sim.files.problems import problems, spell, spell_place, where
from sim.files.toml_lines import Place, key_lines
from sim.topology.fabric import loses
from sim.topology.files.overrides import overridable, overridden
from sim.topology.files.schema import MAX_LINKS, MAX_RANKS, NetworkFields, model, refuse_above
from sim.topology.kinds import KINDS
from sim.topology.layout import NetworkLayout
from sim.topology.topology import Topology


@dataclass(frozen=True, repr=False)
class NetworkDescription:
    """A network as a file describes it, of a stated size or for any number of ranks.

    Attributes:
        name: of the preset, or of the file without its suffix.
        fields: what the file says.
        file: how errors call the file.
        lines: on which line each key stands.
    """

    name: str
    fields: NetworkFields
    file: str = field(compare=False)
    lines: Mapping[Place, int] = field(compare=False)

    def __repr__(self) -> str:
        return f"NetworkDescription({self.name}, {self.kind}, {self.num_ranks or 'any number of'} ranks)"

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

    @property
    def overridable(self) -> tuple[str, ...]:
        """The fields that `overridden` knows."""
        return overridable(self.fields)

    def overridden(self, values: Mapping[str, str | int | float]) -> NetworkDescription:
        """Return the network with other *values* of some fields, as they are written in files.

        What was measured on it as it is, is left out.

        Raises:
            NetworkFileError: there is no such field, it cannot have that value, or no network can be made
                with it.
        """
        return replace(self, fields=overridden(self.fields, values, self.file)).checked()

    def without_fabric(self) -> NetworkDescription:
        """Return the network with ports of which flows get all; see `sim.topology.fabric`."""
        if not loses(getattr(self.fields, "fabric", None)):
            return self
        return replace(self, fields=self.fields.model_copy(update={"fabric": None}))

    def layout(self, num_ranks: int | None = None) -> NetworkLayout:
        """Return the layout of the network; arguments and errors as for `topology`."""
        size = self.num_ranks
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
        refuse_above(MAX_RANKS, ranks, "ranks", self.name)
        made = self.fields.layout(self.name, ranks)
        refuse_above(MAX_LINKS, made.num_links, "directed links", self.name)
        return made

    def topology(self, num_ranks: int | None = None) -> Topology:
        """Return the network for *num_ranks* ranks; they fill nodes in order, the last perhaps partly.

        Args:
            num_ranks: how many; by default as many as the file states.

        Raises:
            TopologyError: an impossible number of ranks, more than 2**20 of them or more than 2**23
                directed links (of a graph 2**20), another number than the file states, or none where it
                states none.
        """
        hardware = self.fields.hardware
        return Topology.of(
            self.layout(num_ranks),
            hardware=None if hardware is None else hardware.hardware(),
            in_network_reduction=self.fields.in_network_reduction,
            measured=tuple(table.curve() for table in self.fields.measured),
        )

    def checked(self) -> NetworkDescription:
        """Return it if it can be made, of the size that it states or else of one rank.

        Raises:
            NetworkFileError: it cannot; names file, line and field.
        """
        try:
            self.topology(1 if self.num_ranks is None else self.num_ranks)
        except FieldError as error:
            line = where(error.place, self.lines)
            raise NetworkFileError(f"{self.file}: {line}{spell_place(error.place)}: {error}") from error
        except TopologyError as error:
            line = where((str(error).partition(":")[0],), self.lines)
            raise NetworkFileError(f"{self.file}: {line}{error}") from error
        return self


def preset_names() -> tuple[str, ...]:
    """Return the names of the networks that come with the package, sorted."""
    return names_in("presets")


def load_network(name_or_path: str | PathLike[str], *, ideal: bool = False) -> NetworkDescription:
    """Return the preset of that name, or the network that the TOML file at that path describes.

    Args:
        name_or_path: of the preset, or of the file.
        ideal: whether to leave out its fabric, so that links alone count.

    Raises:
        NetworkFileError: there is neither, or the file is not a correct description; names the
            file, the line and the field, what is allowed and what is nearest.
    """
    network = parse_network(*read(name_or_path, "presets", "network", NetworkFileError))
    return network.without_fabric() if ideal else network


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
        fields = model(kind).model_validate(content)
    except ValidationError as error:
        said = problems(error, lines, model(kind), f"a network of kind {kind!r}")
        raise NetworkFileError(f"{file}: {said}") from error
    return NetworkDescription(name, fields, file, lines).checked()
