"""Machine of a training: how long kernels take on its device, and messages of a layout on its network.

Kernels of a transformer's layer take what a virtual GPU is charged for them in training.  Messages are
collectives of groups where they are placed, and transfers between stages.  All groups of an axis communicate
at once: where they share links, a group's collective takes longer by as much as its busiest link has more to
carry, each group taken as a ring of its ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from collectives.errors import NotSupportedError
from collectives.timing import Assumptions, simulate
from collectives.virtual.computation.cuda.attention import AttentionShape, attention_ps
from collectives.virtual.computation.cuda.experts import ExpertLayer, layer_ps
from collectives.virtual.computation.launches import Launches
from sim.hardware import Device
from sim.topology import Topology
from sim.units import SECOND
from testbed.planning.layouts.framework import Framework
from testbed.planning.layouts.layout import Layout

DTYPE = "bfloat16"
_aten = torch.ops.aten


class Kernels:
    """How long kernels take on a device, in seconds.

    Args:
        device: on which they run.

    Raises:
        NotSupportedError: it states no fused attention, or does not compute in bfloat16.
    """

    def __init__(self, device: Device) -> None:
        if DTYPE not in device.rates or device.attention_kernels not in device.attention:
            raise NotSupportedError(
                f"the device {device.name}: layouts are planned in {DTYPE} with fused attention; expected "
                "rates of both in its file, as that of h100 has them"
            )
        self.device = device
        self._launches = Launches(device, clocks="training")
        self.product = lru_cache(maxsize=None)(self._product)

    def _product(self, m: int, n: int, k: int) -> float:
        """Return the time of a matrix product, m × k by k × n."""
        x, weight = torch.empty(m, k, device="meta"), torch.empty(n, k, device="meta")
        operands = x.bfloat16(), weight.bfloat16().t()
        result = torch.empty(m, n, dtype=torch.bfloat16, device="meta")
        launches = self._launches.of(_aten.mm.default, operands, {}, result)
        return sum(one.duration_ps for one in launches) / SECOND

    def moved(self, nbytes: float) -> float:
        """Return the time of a kernel that memory bounds."""
        return self.device.duration_ps(0, int(nbytes), "") / SECOND

    def attention(self, sequences: int, seq: int, heads: int, head: int) -> tuple[float, float]:
        """Return both passes of fused causal attention to whole sequences."""
        device = self.device
        shape = AttentionShape(sequences * heads, seq, seq, True, seq, head, head)
        each = 2 * sequences * seq * heads * head
        rates, peak = device.attention[device.attention_kernels], device.peaks[DTYPE]
        forward, backward = (
            attention_ps(shape, rates, peak, is_back, nbytes, device, launches * device.launch_ps) / SECOND
            for is_back, nbytes, launches in ((False, 4 * each, 1), (True, 14 * each, 3))
        )
        return forward, backward

    def experts(self, tokens: int, hidden: int, inner: int, experts: int, gated: bool) -> float:
        """Return the forward pass of experts that have equal parts of so many tokens between them.

        Raises:
            NotSupportedError: the device states no kernels of experts.
        """
        name = f"{self.device.expert_kernels}_{DTYPE}"
        if name not in self.device.experts:
            raise NotSupportedError(
                f"the device {self.device.name}: its file states no kernels of experts in {DTYPE}; expected "
                f"[experts.{name}], as that of h100 has it"
            )
        layer = ExpertLayer(tokens, hidden, inner, (tokens / experts,) * experts, gated)
        return layer_ps(layer, self.device.experts[name], self.device, DTYPE) / SECOND


class Messages:
    """How long messages take on a network, in seconds.

    Args:
        topology: the network.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._assumed = Assumptions.of_a_real_run(topology, on_gpu=True)
        self._alone = lru_cache(maxsize=None)(self._simulated)
        self._contention = lru_cache(maxsize=None)(self._shared)
        self._per_byte = lru_cache(maxsize=None)(self._seconds_per_byte)

    def collective(
        self, collective: str, nbytes: float, layout: Layout, *axes: str, within: slice | None = None
    ) -> float:
        """Return the time of a collective of a group along *axes*, while all such groups have theirs.

        Args:
            collective: its name.
            nbytes: of the buffer, as nccl-tests counts it.
            layout: that places the group.
            axes: along which its ranks lie.
            within: which of these ranks have it; None: all.
        """
        places = layout.group(*axes)
        places = places if within is None else places[within]
        if len(places) == 1 or int(nbytes) == 0:
            return 0.0
        return self._alone(collective, int(nbytes), places) * self._contention(places)

    def transfer(self, nbytes: float, layout: Layout) -> float:
        """Return the time of a message between stages furthest apart, while all ranks send theirs."""
        stages = layout.group("pp")
        return nbytes * max(self._per_byte(pair) for pair in pairwise(stages))

    def nodes(self, places: Iterable[int]) -> int:
        """Return how many nodes there are from the first place to the last."""
        each = self.topology.ranks_per_node
        return max(places) // each - min(places) // each + 1

    def _simulated(self, collective: str, nbytes: int, places: tuple[int, ...]) -> float:
        return simulate(
            self._assumed.algorithm,
            nbytes=nbytes,
            topology=self.topology,
            collective=collective,
            placement=list(places),
            assumptions=self._assumed,
        ).seconds

    def _seconds_per_byte(self, pair: tuple[int, int]) -> float:
        rates = [int(self.topology.link_bandwidth[link]) for link in self.topology.route(*pair)]
        return self._contention(pair) / min(rates)

    def _shared(self, places: tuple[int, ...]) -> float:
        """Return by what factor a group is slower while the others that are placed like it communicate."""
        own = self._carried([places])
        everyone = self._carried(self._alike(places))
        bandwidth = self.topology.link_bandwidth
        alone, together = (
            max(flows / int(bandwidth[link]) for link, flows in carried.items())
            for carried in (own, everyone)
        )
        return together / alone

    def _alike(self, places: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the groups of all ranks that lie apart as *places* do."""
        groups, taken = [], set[int]()
        for base in range(self.topology.num_ranks - places[-1]):
            if base in taken:
                continue
            group = tuple(base + place for place in places)
            if taken.isdisjoint(group):
                groups.append(group)
                taken.update(group)
        return groups

    def _carried(self, groups: Iterable[tuple[int, ...]]) -> Counter[int]:
        """Return how many messages links carry, of a ring in each group."""
        carried = Counter[int]()
        for group in groups:
            for source, destination in zip(group, (*group[1:], group[0]), strict=True):
                carried.update(self.topology.route(source, destination))
        return carried


@dataclass(frozen=True, eq=False)
class Machine:
    """What a training runs on.

    Attributes:
        kernels: of its device.
        messages: of its network.
        framework: that trains.
    """

    kernels: Kernels
    messages: Messages
    framework: Framework
