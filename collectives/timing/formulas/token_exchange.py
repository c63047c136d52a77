"""Tokens to experts and back in two levels, each once to a node: along a rail, then over NVLink.

A token that several experts of one node want crosses the network once, and NVLink once to each rank that has
such experts; results come back summed on the same ways (DeepEP's dispatch and combine).  `Exchanged` says how
many copies that is, drawn evenly from all experts; `exchange_us` how long it takes:

    time = floor + (tokens + what fills the pipeline) · the slowest of
               multiprocessors   work of a token, of each copy, and of each that leaves the node
               NVLink            copies for other ranks of the node · bytes / rate
               rail              copies for other nodes · bytes / rate

Rates are those of the network; kernels reach a stated share of them.  Work is a time on one multiprocessor,
divided by how many there are.

Assumed: experts are taken equally often; each rank has as many tokens; nothing else is under way.  Constants
were fitted on rows of one node of 8 H100, H200, B200 and 4 GB200, and of 2 to 8 nodes of H100 with tokens
7168 wide: between nodes all work is taken to grow with bytes, and Blackwell to work as Hopper does.

Source: deepseek-ai/DeepEP, high throughput kernels; measured by NVIDIA's aiconfigurator (SGLang 0.5.12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from typing import Literal, TypeAlias

from collectives.errors import NotSupportedError
from sim.hardware import Generation
from sim.topology import Topology

Way: TypeAlias = Literal["dispatch", "combine"]

DISPATCH_BYTES, COMBINE_BYTES = 1 + 4 / 128, 2.0
"""Of a number: float8 with a float32 scale for each 128, and bfloat16."""


@dataclass(frozen=True)
class Exchanged:
    """What a rank exchanges in a layer of experts.

    Attributes:
        tokens: of a rank.
        hidden: width of a token.
        chosen: experts of a token.
        experts: of all ranks.
        ranks: among which experts are divided.
        ranks_per_node: of these.
        most_nodes: of a token at most, drawn evenly; None: all.
    """

    tokens: int
    hidden: int
    chosen: int
    experts: int
    ranks: int
    ranks_per_node: int
    most_nodes: int | None = None

    def __post_init__(self) -> None:
        """Check that experts and ranks divide.

        Raises:
            NotSupportedError: they do not.
        """
        if self.experts % self.ranks or self.ranks % self.ranks_per_node or self.chosen > self.experts:
            raise NotSupportedError(
                f"{self.experts} experts of which a token takes {self.chosen}, on {self.ranks} ranks, "
                f"{self.ranks_per_node} a node: expected as many experts on every rank and as many ranks on "
                "every node"
            )

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.ranks // self.ranks_per_node

    @property
    def _reached(self) -> int:
        return min(self.nodes, self.most_nodes or self.nodes)

    @property
    def copies(self) -> float:
        """Ranks, of all nodes, that have experts of a token, its own rank's included."""
        return self._distinct(self._reached * self.ranks_per_node)

    @property
    def leaving(self) -> float:
        """Other nodes that have experts of a token."""
        return self._distinct(self._reached) * (self.nodes - 1) / self.nodes

    def _distinct(self, parts: int) -> float:
        """Return how many of equal *parts* of the experts that a token may take have some of its own."""
        experts = self.experts * self._reached // self.nodes
        if self.chosen > experts:
            raise NotSupportedError(f"{self.chosen} of {experts} experts of a token: expected no more")
        return parts * (1 - comb(experts - experts // parts, self.chosen) / comb(experts, self.chosen))


@dataclass(frozen=True)
class _Kernels:
    """Constants: microseconds of a floor, nanoseconds of one multiprocessor for all else.

    Attributes:
        floor: of a call; *floor_byte* for each byte of a token, *floor_node* for each node.
        token: of a token, *token_byte* for each of its bytes.
        copy: of a copy for a rank, *copy_byte* for each byte.
        leaving_byte: of a copy for another node, for each byte.
        filling: tokens that fill the pipeline.
        nvlink: share of NVLink's rate.
        rail: share of a rail's rate.
    """

    floor: float
    floor_byte: float = 0.0
    floor_node: float = 0.0
    token: float = 0.0
    token_byte: float = 0.0
    copy: float = 0.0
    copy_byte: float = 0.0
    leaving_byte: float = 0.0
    filling: float = 0.0
    nvlink: float = 0.79
    rail: float = 0.91


_IN_A_NODE: Mapping[tuple[Generation, Way], _Kernels] = {
    ("hopper", "dispatch"): _Kernels(24.9, 1.3e-4, 0, 214, 0.035, 86.6, 0.0301, filling=18),
    ("hopper", "combine"): _Kernels(25.8, 1.3e-3, 0, 0, 0.110, 33.9, 0.0288, filling=7),
    ("blackwell", "dispatch"): _Kernels(32.4, 2.6e-4, 0, 437, 0.0, 117, 0.0327),
    ("blackwell", "combine"): _Kernels(29.6, 1.4e-3, 0, 872, 0.0076, 11.4, 0.0364, filling=2),
}
_BETWEEN_NODES: Mapping[Way, _Kernels] = {
    "dispatch": _Kernels(27.8, 0, 1.66, copy_byte=0.0730, leaving_byte=0.0751, filling=5),
    "combine": _Kernels(48.7, 0, 0.69, copy_byte=0.0891, leaving_byte=0.0763, filling=22),
}


def exchange_us(
    way: Way, exchanged: Exchanged, topology: Topology, multiprocessors: int, rails_slower: float = 1.0
) -> float:
    """Return how long a dispatch or combine takes, in microseconds.

    Args:
        way: to the experts, or back.
        exchanged: what a rank exchanges.
        topology: the network, whose ranks are on nodes as those of *exchanged*.
        multiprocessors: on which the kernels run.
        rails_slower: by how much less of a rail is had than the network states.

    Raises:
        NotSupportedError: the network does not say that its ranks are GPUs of a generation that is known.
    """
    generation = topology.hardware.generation if topology.hardware is not None else None
    kernels = _IN_A_NODE.get((generation, way)) if generation is not None else None
    if kernels is None:
        raise NotSupportedError(
            f"token exchange on {topology.name}: expected GPUs of generation hopper or blackwell, got "
            f"{generation or 'a network without [hardware]'}"
        )
    several = exchanged.nodes > 1
    kernels = _BETWEEN_NODES[way] if several else kernels
    nbytes = exchanged.hidden * (DISPATCH_BYTES if way == "dispatch" else COMBINE_BYTES)
    copies, leaving = exchanged.copies, exchanged.leaving
    work = kernels.token + kernels.token_byte * nbytes + copies * (kernels.copy + kernels.copy_byte * nbytes)
    work = (work + leaving * kernels.leaving_byte * nbytes) / multiprocessors
    inside = exchanged.ranks_per_node
    waits = [work]
    if inside > 1:
        waits.append(copies * (inside - 1) / inside * nbytes / (_rate(topology, 1) * kernels.nvlink))
    if several:
        rail = _rate(topology, topology.ranks_per_node) * kernels.rail / rails_slower
        waits.append(leaving * nbytes / rail)
    filling = min(exchanged.tokens, kernels.filling)
    floor = kernels.floor + kernels.floor_byte * nbytes + kernels.floor_node * exchanged.nodes
    return floor + (exchanged.tokens + filling) * max(waits) / 1e3


def _rate(topology: Topology, peer: int) -> float:
    """Return the bytes that go from the first rank to *peer*, per nanosecond."""
    return min(int(topology.link_bandwidth[link]) for link in topology.route(0, peer)) / 1e9
