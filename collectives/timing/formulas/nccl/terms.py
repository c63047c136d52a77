"""Terms of NCCL's own model: the candidates for a call, and the latency and bandwidth of each.

In microseconds and 10⁹ bytes per second, as in the source.  `collectives.timing.formulas.nccl.model` says
what is assumed.

Source: NVIDIA/nccl 2.30, ``ncclTopoTuneModel`` and ``ncclTopoGetAlgoTime`` in ``src/graph/tuning.cc``,
``updateCollCostTable`` in ``src/enqueue.cc``, ``ncclNvlsInit`` in ``src/transport/nvls.cc``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collectives.timing.formulas.nccl.constants import (
    ALGORITHMS,
    PROTOCOLS,
    ByGeneration,
    Constants,
    NcclAlgorithm,
    NcclProtocol,
)
from sim.hardware import Channels, Hardware

COLLECTIVES: Mapping[str, tuple[NcclAlgorithm, ...]] = {
    "all_reduce": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"),
    "all_gather": ("Ring", "CollNetDirect", "NVLS", "PAT"),
    "reduce_scatter": ("Ring", "CollNetDirect", "NVLS", "PAT"),
    "broadcast": ("Ring",),
    "reduce": ("Ring",),
}
"""The collectives of the model, and the algorithms that NCCL has for each."""

THREADS: Mapping[NcclProtocol, int] = {"LL": 512, "LL128": 640, "Simple": 512}
"""Of a channel (``NCCL_LL_MAX_NTHREADS`` and so on)."""
THREAD_THRESHOLD: Mapping[NcclProtocol, int] = {"LL": 8, "LL128": 8, "Simple": 64}
"""Bytes for each thread of a channel before one more channel is taken; of Ring with LL, times the ranks."""

REDUCED_IN_SWITCHES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("float16", "bfloat16", "int32", "uint32", "int64", "uint64"), ("sum", "min", "max")),
    **dict.fromkeys(("float32", "float64"), ("sum",)),
}
"""Operations that NVLink switches carry out, by type (``ncclNvlsSupported``, ``src/include/device.h``)."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_MAX_FLOAT8_RANKS = 8

_GBPS = 1e9
_PS_PER_US = 1e6
_MAX_CHANNELS = 64
_MAX_COLLNET_RANKS = 8  # of a node: NCCL_MAX_DIRECT_ARITY + 1
_MAX_NVLS_RANKS = 32  # of a node, but for all-reduce: NCCL_MAX_NVLS_ARITY


@dataclass(frozen=True, slots=True)
class NcclCall:
    """A collective of *nbytes* on nodes of *hardware*; there is more than one rank.

    Of the type and the operation it matters only where NCCL has no kernel, or one that loses precision.
    """

    collective: str
    nbytes: int
    num_nodes: int
    ranks_per_node: int
    hardware: Hardware
    constants: Constants
    dtype: str = "float16"
    operation: str = "sum"

    @property
    def num_ranks(self) -> int:
        """Number of ranks, those of all nodes."""
        return self.num_nodes * self.ranks_per_node

    @property
    def num_steps(self) -> int:
        """Messages that follow each other in a ring."""
        match self.collective:
            case "all_reduce":
                return 2 * (self.num_ranks - 1)
            case "all_gather" | "reduce_scatter":
                return self.num_ranks - 1
        return self.num_ranks

    def candidates(self) -> Iterator[tuple[NcclAlgorithm, NcclProtocol]]:
        """Yield what NCCL considers, in its order."""
        for algorithm in ALGORITHMS:
            if algorithm in COLLECTIVES[self.collective] and self._has(algorithm):
                for protocol in PROTOCOLS if algorithm in ("Tree", "Ring") else PROTOCOLS[-1:]:
                    if protocol != "LL128" or self._has_ll128():
                        yield algorithm, protocol

    def _has(self, algorithm: NcclAlgorithm) -> bool:
        """Return whether the hardware and the number of ranks allow *algorithm*."""
        several = self.num_nodes > 1
        collnet = several and self.hardware.collnet is not None and self.ranks_per_node <= _MAX_COLLNET_RANKS

        match algorithm:
            case "CollNetDirect":
                hardware = self.hardware
                return collnet and hardware.intra_link == "nvlink" and hardware.generation != "volta"
            case "CollNetChain":
                return collnet
            case "NVLS" | "NVLSTree":
                few = self.collective == "all_reduce" or self.ranks_per_node <= _MAX_NVLS_RANKS
                between = (
                    several if algorithm == "NVLSTree" else not several or self.hardware.collnet is not None
                )
                channels = self._nvls_channels()
                return (
                    few
                    and self._is_reduced_in_switches()
                    and between
                    and self.ranks_per_node > 2
                    and channels is not None
                    and channels.count > 1
                )
            case "PAT":
                averages = self.collective == "reduce_scatter" and self.operation == "avg"
                return self.ranks_per_node == 1 and not averages

        return True

    def _is_reduced_in_switches(self) -> bool:
        return self.collective == "all_gather" or self.operation in REDUCED_IN_SWITCHES.get(self.dtype, ())

    def is_last_resort(self, algorithm: NcclAlgorithm) -> bool:
        """Return whether NCCL takes *algorithm* only if there is no other: long rings of float8."""
        return algorithm == "Ring" and self.dtype in FLOAT8 and self.num_ranks > _MAX_FLOAT8_RANKS

    def part_of_channels(self, algorithm: NcclAlgorithm, protocol: NcclProtocol) -> float:
        """Return what part of the channels' bandwidth a call of this size has; one channel at least.

        Each carries what the search found for one, so once there are as many as it found, more add nothing.

        Source: ``topoGetAlgoInfo`` in ``src/enqueue.cc``.
        """
        if algorithm not in ("Ring", "Tree", "PAT"):
            return 1.0
        found = self._channels(algorithm).count
        threshold = THREADS[protocol] * THREAD_THRESHOLD[protocol]
        if algorithm == "Ring" and protocol == "LL":
            threshold *= self.num_ranks
        return min(max(self.nbytes // threshold, 1), found) / found

    def _has_ll128(self) -> bool:
        return self.hardware.intra_link == "nvlink" and (self.num_nodes == 1 or self.hardware.ll128)

    def _nvls_channels(self) -> Channels | None:
        return self.hardware.nvls_one_node if self.num_nodes == 1 else self.hardware.nvls_several_nodes

    def _channels(self, algorithm: NcclAlgorithm) -> Channels:
        if algorithm in ("NVLS", "NVLSTree"):
            found = self._nvls_channels()
        elif algorithm in ("CollNetDirect", "CollNetChain"):
            found = self.hardware.collnet
        else:
            found = self.hardware.one_node if self.num_nodes == 1 else self.hardware.several_nodes
        assert found is not None, f"{algorithm} is no candidate without channels"
        return found

    def _at_scale(self, ceiling: ByGeneration, row: str | None = None) -> float:
        return ceiling[row or self.hardware.generation][min(self.num_nodes, 3) - 1]

    def bandwidth(self, algorithm: NcclAlgorithm, protocol: NcclProtocol, part: float = 1.0) -> float:
        """Return by what NCCL divides the size, or where only a *part* of the channels is taken would."""
        count = self._channels(algorithm).count * part
        bus = count * self._channel_bandwidth(algorithm)
        parts = self.collective in ("all_gather", "reduce_scatter")
        match algorithm:
            case "Ring":
                bus = self._ring(bus, count, protocol)
            case "Tree":
                bus = self._tree(bus, count, protocol)
            case "CollNetDirect":
                bus = self._collnet_direct(bus, parts)
            case "PAT":
                bus *= self.constants.pat_share
        if algorithm == "Ring" or (algorithm in ("NVLS", "NVLSTree") and not parts):
            bus *= self.num_ranks / self.num_steps
        elif not parts:
            bus *= 0.5
        return bus * self._correction(algorithm, protocol)

    def _channel_bandwidth(self, algorithm: NcclAlgorithm) -> float:
        channels = self._channels(algorithm)
        intra, inter = channels.intra_bandwidth / _GBPS, channels.inter_bandwidth / _GBPS
        if algorithm in ("NVLS", "NVLSTree"):
            efficiency = self.constants.nvls_efficiency[self.hardware.generation]
            intra *= efficiency * (channels.count - 1) / channels.count
            if self.collective == "all_reduce":
                intra *= 2  # it pipelines two operations
            else:
                intra *= (self.ranks_per_node - 1) / self.ranks_per_node
            if algorithm == "NVLSTree":
                ceiling = self._at_scale(self.constants.nvls_tree_ceiling)
                return min(intra, inter * (2 if self.num_nodes == 2 else 1), ceiling)
            return min(intra, inter)
        return intra if self.num_nodes <= 2 or algorithm in ("CollNetDirect", "CollNetChain") else inter

    def _ll_ceiling(self) -> float:
        several = "ampere" if self.hardware.cpu == "amd" else "volta"
        return self._at_scale(self.constants.ll_ceiling, None if self.num_nodes == 1 else several)

    def _ring(self, bus: float, count: float, protocol: NcclProtocol) -> float:
        bus *= self.constants.ring_share[protocol]
        match protocol:
            case "LL":
                return min(self._ll_ceiling(), bus)
            case "LL128":
                return min(bus, count * self._at_scale(self.constants.ring_ll128_ceiling))
        return bus

    def _tree(self, bus: float, count: float, protocol: NcclProtocol) -> float:
        share = self.constants.tree_share[protocol]
        if share is not None:
            bus = min(bus * share, count * self._at_scale(self.constants.tree_ceiling))
        bus *= self.constants.tree_payload[self.num_nodes > 1][protocol]
        match protocol:
            case "LL":
                bus = min(bus, self._ll_ceiling())
            case "LL128":
                bus = min(bus, count * self._at_scale(self.constants.tree_ll128_ceiling))
        return bus if self.hardware.split_tree else bus * self.constants.plain_tree_share

    def _collnet_direct(self, bus: float, parts: bool) -> float:
        channels = self._channels("CollNetDirect")
        if parts:
            return self.ranks_per_node * min(channels.intra_bandwidth, 0.9 * channels.inter_bandwidth) / _GBPS
        ranks_per_card = self.ranks_per_node / channels.count
        bus /= ranks_per_card - (ranks_per_card - 1) / 2
        return bus * 0.85 if self.hardware.generation in ("hopper", "blackwell") else bus

    def _correction(self, algorithm: NcclAlgorithm, protocol: NcclProtocol) -> float:
        """Return the factor by which trees differ from the model at medium sizes."""
        factors = self.constants.tree_correction[protocol]
        if algorithm == "Tree":
            factors = factors[: self.constants.num_tree_corrections]
        elif (
            algorithm != "NVLSTree" or self.hardware.generation != "blackwell" or self.hardware.cpu == "other"
        ):
            return 1.0
        size = (self.nbytes >> 6).bit_length() - 1
        return factors[size] if 0 <= size < len(factors) else 1.0

    def latency(self, algorithm: NcclAlgorithm, protocol: NcclProtocol, slower: float = 1.0) -> float:
        """Return what does not depend on the size (but for the plateau of rings).

        Where the GPU is *slower* than one of which the constants are, its part takes so many times as long.
        """
        hop = self.constants.hop_latency
        base = slower * self.constants.base_latency[algorithm][protocol]
        intra = slower * hop[self.hardware.intra_link][algorithm][protocol]
        inter = hop["net"]["Tree" if self.ranks_per_node == 1 else algorithm][protocol]
        card = self.hardware.net_latency_ps / _PS_PER_US
        inter += 2 * card if protocol == "Simple" else card  # Simple flushes
        others, levels = self.ranks_per_node - 1, self.num_nodes.bit_length() - 1

        match algorithm:
            case "Ring":
                return self._ring_latency(base, intra, inter, protocol)
            case "Tree":
                return base + 2 * (others * intra + levels * inter)
            case "CollNetDirect":
                return base + 2 * (min(1, others) * intra + others * 0.4) + inter
            case "CollNetChain":
                return base + 2 * others * intra + inter
            case "NVLS":
                return intra + (inter if self.num_nodes > 1 else 0)
            case "NVLSTree":
                return base + intra + 2 * levels * inter
            case "PAT":
                return base + levels * inter / 3.5 + self.num_ranks * 2.8

    def _ring_latency(self, base: float, intra: float, inter: float, protocol: NcclProtocol) -> float:
        several = self.num_nodes > 1
        if self.collective in ("broadcast", "reduce"):
            of = "Ring" if self.hardware.same_channels or protocol != "Simple" else "Tree"
            link = "net" if several else self.hardware.intra_link
            hop = self.constants.hop_latency[link][of][protocol]  # type: ignore[index]
            return base + hop * (1 if self.hardware.same_channels else self.num_steps)
        if several:
            posting = self.hardware.posting_ps / _PS_PER_US
            intra = max(intra, 3 * posting if protocol == "Simple" else posting)
        between = self.num_steps * (self.num_nodes - 1) // (self.num_ranks - 1)
        latency = base + (self.num_steps - between) * intra + between * inter
        per_channel = self.nbytes // (min(2 * self._channels("Ring").count, _MAX_CHANNELS) * self.num_ranks)
        if several and protocol == "Simple" and self.collective == "all_reduce" and per_channel >= 64:
            latency *= self.constants.ring_plateau[self.hardware.generation != "volta"]
        return latency
