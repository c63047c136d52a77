"""Networks in files as data: the kind of network, and what its fields say.

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

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike

from pydantic import ValidationError

from sim.errors import NetworkFileError, TopologyError
from sim.files.fields import FieldError, nearest
from sim.files.named import names_in, parse, read
from sim.files.problems import problems, spell, spell_place, where
from sim.files.toml_lines import Place, key_lines
from sim.hardware import Hardware
from sim.measured import MeasuredCurve
from sim.topology.files.schema import MAX_LINKS, MAX_RANKS, NetworkFields, model, refuse_above
from sim.topology.kinds import KINDS
from sim.topology.layout import NetworkLayout


@dataclass(frozen=True)
class NetworkFile:
    """What a network file says, read and checked field by field.

    Attributes:
        name: of the preset, or of the file without its suffix.
        fields: what the file says.
        file: how errors call the file.
        lines: on which line each key stands.
    """

    name: str
    fields: NetworkFields
    file: str = field(compare=False)
    lines: Mapping[Place, int] = field(compare=False, repr=False)

    @property
    def hardware(self) -> Hardware | None:
        """What the GPUs and network cards are, if the file says so.

        Raises:
            TopologyError: fields that contradict each other.
        """
        table = self.fields.hardware
        return None if table is None else table.hardware()

    @property
    def measured(self) -> tuple[MeasuredCurve, ...]:
        """What collectives take on this network by measurement, as far as the file says.

        Raises:
            TopologyError: fields that contradict each other.
        """
        return tuple(table.curve() for table in self.fields.measured)

    def layout(self, num_ranks: int | None = None) -> NetworkLayout:
        """Return the layout of the network for *num_ranks* ranks.

        Args:
            num_ranks: how many; by default as many as the file states.

        Raises:
            TopologyError: more than 2**20 ranks or more than 2**23 directed links (of a graph 2**20),
                another number of ranks than the file states, or none where it states none.
            FieldError: a table of a graph that does not fit the others.
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
        refuse_above(MAX_RANKS, ranks, "ranks", self.name)
        made = self.fields.layout(self.name, ranks)
        refuse_above(MAX_LINKS, made.num_links, "directed links", self.name)
        return made

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Blame the file for what is wrong while its network is made: name it, the line and the field.

        Raises:
            NetworkFileError: where there was a `FieldError` or `TopologyError`.
        """
        try:
            yield
        except FieldError as error:
            line = where(error.place, self.lines)
            raise NetworkFileError(f"{self.file}: {line}{spell_place(error.place)}: {error}") from error
        except TopologyError as error:
            line = where((str(error).partition(":")[0],), self.lines)
            raise NetworkFileError(f"{self.file}: {line}{error}") from error


def preset_names() -> tuple[str, ...]:
    """Return the names of the networks that come with the package, sorted."""
    return names_in("presets")


def read_network(name_or_path: str | PathLike[str]) -> NetworkFile:
    """Return what the preset of that name, or the file at that path, says.

    Raises:
        NetworkFileError: there is neither, or a field is wrong.
    """
    return parse_network(*read(name_or_path, "presets", "network", NetworkFileError))


def parse_network(text: str, name: str, file: str) -> NetworkFile:
    """Return what the TOML document *text* says.

    Args:
        text: the document.
        name: of the network.
        file: where the text is from, for errors.

    Raises:
        NetworkFileError: it is no TOML, or a field is wrong.
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
    return NetworkFile(name, fields, file, lines)
