"""Networks by name or from files, as ``docs/files.md`` describes them: topologies of any size.

`load_network` reads the file (`sim.topology.files.network_file`) and checks that the network can be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike

from sim.topology.fabric import loses
from sim.topology.files import network_file
from sim.topology.files.network_file import NetworkFile, preset_names
from sim.topology.files.overrides import overridable, overridden
from sim.topology.files.schema import NetworkFields
from sim.topology.topology import Topology, checked, described

__all__ = ["NetworkDescription", "load_network", "parse_network", "preset_names"]


@dataclass(frozen=True, repr=False)
class NetworkDescription:
    """A network as a file describes it, of a stated size or for any number of ranks.

    Attributes:
        file: what the file says.
    """

    file: NetworkFile

    def __repr__(self) -> str:
        return f"NetworkDescription({self.name}, {self.kind}, {self.num_ranks or 'any number of'} ranks)"

    @property
    def name(self) -> str:
        """Name of the preset, or of the file without its suffix."""
        return self.file.name

    @property
    def fields(self) -> NetworkFields:
        """The fields of the file."""
        return self.file.fields

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
        return overridable(self.file)

    def overridden(self, values: Mapping[str, str | int | float]) -> NetworkDescription:
        """Return the network with other *values* of some fields, as they are written in files.

        What was measured on it as it is, is left out.

        Raises:
            NetworkFileError: there is no such field, it cannot have that value, or no network can be made
                with it.
        """
        return NetworkDescription(checked(overridden(self.file, values)))

    def without_fabric(self) -> NetworkDescription:
        """Return the network with ports of which flows get all; see `sim.topology.fabric`."""
        if not loses(getattr(self.fields, "fabric", None)):
            return self
        fields = self.fields.model_copy(update={"fabric": None})
        return NetworkDescription(replace(self.file, fields=fields))

    def topology(self, num_ranks: int | None = None) -> Topology:
        """Return the network for *num_ranks* ranks; they fill nodes in order, the last perhaps partly.

        Args:
            num_ranks: how many; by default as many as the file states.

        Raises:
            TopologyError: an impossible number of ranks, more than 2**20 of them or more than 2**23
                directed links (of a graph 2**20), another number than the file states, or none where it
                states none.
        """
        return described(self.file, num_ranks)


def load_network(name_or_path: str | PathLike[str], *, ideal: bool = False) -> NetworkDescription:
    """Return the preset of that name, or the network that the TOML file at that path describes.

    Args:
        name_or_path: of the preset, or of the file.
        ideal: whether to leave out its fabric, so that links alone count.

    Raises:
        NetworkFileError: there is neither, or the file is not a correct description; names the
            file, the line and the field, what is allowed and what is nearest.
    """
    network = NetworkDescription(checked(network_file.read_network(name_or_path)))
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
    return NetworkDescription(checked(network_file.parse_network(text, name, file)))
