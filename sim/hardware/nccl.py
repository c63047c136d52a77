"""Facts of GPUs, hosts and channels that NCCL's own model needs.

A `Hardware` says what a network of links does not.  NCCL decides by the generation of the GPUs and by what
its search of the topology has found: how many channels (parallel rings, trees) it will use, and how many
bytes per second one of them carries inside a node and between nodes.  It searches anew for each
communicator, so one in a single node and one over several nodes have other channels, as have those that
let NVLink switches reduce (NVLS).

| field | means (in NCCL) | default |
|---|---|---|
| ``generation`` | ``volta``, ``ampere``, ``hopper``, ``blackwell`` (compute capability 7, 8, 9, 10) | – |
| ``gpu`` | the GPU by the name of its device file, ``h200``, for what a step loses on it; not NCCL's | none |
| ``one_node`` | channels of rings and trees in one node (``nChannels``, ``bwIntra``, ``bwInter``) | – |
| ``several_nodes`` | the same over several nodes; none: NCCL is not modelled there | none |
| ``nvls_one_node`` | channels through switches that reduce (the NVLS graph); none: no NVLink SHARP | none |
| ``nvls_several_nodes`` | the same over several nodes | none |
| ``collnet`` | channels through switches between nodes that reduce, by a plugin; none: no plugin | none |
| ``intra_link`` | ``nvlink`` or ``pci``: between the GPUs of a node (``typeIntra``) | ``nvlink`` |
| ``cpu`` | ``intel``, ``amd`` (both x86) or ``other``: of the host (``cpuVendor``, ``cpuArch``) | ``intel`` |
| ``net_overhead_ps`` | posting a message to the card (``getNetOverhead``); none: by the host | none |
| ``net_latency_ps`` | that the card's driver declares (``latencyInter``) | 0 |
| ``ll128`` | LL128 is allowed between GPU and card (``typeInter`` at most PXB, from Hopper PXN) | yes |
| ``split_tree`` | a tree enters and leaves a node by different GPUs (pattern is not ``TREE``) | yes |
| ``same_channels`` | all channels visit the GPUs in one order (``sameChannels``) | yes |

Source: NVIDIA/nccl, ``src/graph/tuning.cc`` and ``src/graph/search.cc``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from sim.errors import TopologyError
from sim.units import Quantity, parse_bandwidth, parse_count

Generation: TypeAlias = Literal["volta", "ampere", "hopper", "blackwell"]
IntraLink: TypeAlias = Literal["nvlink", "pci"]
Cpu: TypeAlias = Literal["intel", "amd", "other"]


@dataclass(frozen=True)
class Channels:
    """The parallel channels over which NCCL spreads a collective.

    Attributes:
        count: how many, at least 1.
        intra_bandwidth: bytes per second of one channel inside a node.
        inter_bandwidth: bytes per second of one channel between nodes; in one node NCCL sets it to
            that inside.

    Raises:
        TopologyError: a count or bandwidth that is not a whole number of at least 1.
    """

    count: int
    intra_bandwidth: int
    inter_bandwidth: int

    def __post_init__(self) -> None:
        for name in ("count", "intra_bandwidth", "inter_bandwidth"):
            parse_count(getattr(self, name), f"channels: {name}", 1)

    @classmethod
    def of(cls, count: int, intra_bandwidth: Quantity, inter_bandwidth: Quantity | None = None) -> Channels:
        """Return channels with bandwidths as people write them, ``"20GB/s"``.

        Args:
            count: how many.
            intra_bandwidth: of one channel inside a node.
            inter_bandwidth: of one channel between nodes; by default that inside.

        Raises:
            TopologyError: an impossible count.
            UnitError: a bandwidth that cannot be read.
        """
        inside = parse_bandwidth(intra_bandwidth, "intra_bandwidth")
        between = inside if inter_bandwidth is None else parse_bandwidth(inter_bandwidth, "inter_bandwidth")
        return cls(count, inside, between)


@dataclass(frozen=True)
class Hardware:
    """GPUs, hosts and NCCL's channels; the fields are those of the table above.

    Raises:
        TopologyError: a value that is not allowed; names the field.
    """

    generation: Generation
    one_node: Channels
    several_nodes: Channels | None = None
    nvls_one_node: Channels | None = None
    nvls_several_nodes: Channels | None = None
    collnet: Channels | None = None
    intra_link: IntraLink = "nvlink"
    cpu: Cpu = "intel"
    net_overhead_ps: int | None = None
    net_latency_ps: int = 0
    ll128: bool = True
    split_tree: bool = True
    same_channels: bool = True
    gpu: str = field(default="", repr=False)  # a network's digest, its repr, is of what messages and NCCL see

    def __post_init__(self) -> None:
        for name, known in (("generation", Generation), ("intra_link", IntraLink), ("cpu", Cpu)):
            value = getattr(self, name)
            if value not in get_args(known):
                raise TopologyError(
                    f"hardware: {name}: expected one of {', '.join(get_args(known))}, got {value!r}"
                )

        for name in ("one_node", "several_nodes", "nvls_one_node", "nvls_several_nodes", "collnet"):
            value = getattr(self, name)
            if not isinstance(value, Channels) and (value is not None or name == "one_node"):
                raise TopologyError(f"hardware: {name}: expected Channels, got {value!r}")

        for name in ("ll128", "split_tree", "same_channels"):
            if not isinstance(getattr(self, name), bool):
                raise TopologyError(f"hardware: {name}: expected true or false, got {getattr(self, name)!r}")
        for name in ("net_overhead_ps", "net_latency_ps"):
            if getattr(self, name) is not None or name == "net_latency_ps":
                parse_count(getattr(self, name), f"hardware: {name}", 0)

        if self.generation in ("volta", "ampere") and (self.nvls_one_node or self.nvls_several_nodes):
            raise TopologyError(
                f"hardware: nvls channels: {self.generation} has no NVLink SHARP; it begins with hopper"
            )

    @property
    def posting_ps(self) -> int:
        """Picoseconds for posting a message to the network card: as given, else 1 us, on AMD 2 us."""
        if self.net_overhead_ps is not None:
            return self.net_overhead_ps
        return 2 * 10**6 if self.cpu == "amd" else 10**6

    @property
    def nvls(self) -> bool:
        """Whether the NVLink switches reduce and multicast."""
        return self.nvls_one_node is not None or self.nvls_several_nodes is not None
