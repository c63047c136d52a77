"""Constants of NCCL's own model: latencies, ceilings and corrections, as of NCCL 2.30.

Latencies are in microseconds and bandwidths in 10⁹ bytes per second, as in the source, so that the two
can be compared line by line.  In NCCL a tuner plugin may replace such constants; here `Constants` are an
argument of the model.

Source: NVIDIA/nccl, ``src/graph/tuning.cc``: ``ncclTunerConstantsDefaults``, ``nvlsEfficiency``,
``treeCorrectionFactor``, and the factors inside ``ncclTopoTuneModel``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

NcclAlgorithm: TypeAlias = Literal["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"]
NcclProtocol: TypeAlias = Literal["LL", "LL128", "Simple"]
LinkClass: TypeAlias = Literal["nvlink", "pci", "net"]
ByProtocol: TypeAlias = Mapping[NcclProtocol, float]
ByAlgorithm: TypeAlias = Mapping[NcclAlgorithm, ByProtocol]
ByGeneration: TypeAlias = Mapping[str, tuple[float, float, float]]
"""By generation of the GPUs: on one node, on two, on more."""

ALGORITHMS: tuple[NcclAlgorithm, ...] = (
    "Tree",
    "Ring",
    "CollNetDirect",
    "CollNetChain",
    "NVLS",
    "NVLSTree",
    "PAT",
)
PROTOCOLS: tuple[NcclProtocol, ...] = ("LL", "LL128", "Simple")


CLOCK_MHZ: Mapping[str, int] = {"volta": 1530, "ampere": 1410, "hopper": 1980, "blackwell": 1965}
"""The most that the SMs of each generation run at, as ``nvidia-smi -q -d CLOCK`` gives it for SXM modules."""


def slower_than_hopper(generation: str) -> float:
    """Return how many times as long an SM of *generation* takes for an instruction as one of Hopper.

    NCCL has one latency for all generations.  Inside a node those of protocol LL are what a Hopper was
    measured to take, and an Ampere takes longer by this (docs/truth.md).
    """
    return CLOCK_MHZ["hopper"] / CLOCK_MHZ[generation]


@dataclass(frozen=True)
class Constants:
    """The model's numbers; `dataclasses.replace` makes others.

    Attributes:
        base_latency: us, once per collective.
        hop_latency: us, per hop over a class of links.
        ll_ceiling: GB/s that LL reaches over all channels: on one node by the GPU, on several by the
            host (row ``ampere`` for AMD, ``volta`` for others).
        ring_ll128_ceiling: GB/s of a channel.
        tree_ll128_ceiling: GB/s of a channel.
        tree_ceiling: GB/s of a channel.
        nvls_tree_ceiling: GB/s of a channel.
        nvls_efficiency: part of the NVLink bandwidth that NVLS reaches.
        ring_share: part of the channels' bandwidth that a ring's payload reaches.
        tree_share: the same for a tree, before its ceiling and its protocol's part; none: neither applies.
        tree_payload: of that, what the protocol leaves for payload: on one node, on several.
        plain_tree_share: of that, where a tree enters and leaves a node by the same GPU.
        pat_share: part of the channels' bandwidth that PAT reaches.
        tree_correction: factors of a tree's bandwidth by ⌊log2(bytes / 64)⌋; they apply to NVLSTree, too,
            on x86 and from Blackwell on.
        num_tree_corrections: how many of them apply to Tree.
        ring_plateau: factor of a ring's latency with Simple on several nodes: before Ampere, and since.
    """

    base_latency: ByAlgorithm
    hop_latency: Mapping[LinkClass, ByAlgorithm]
    ll_ceiling: ByGeneration
    ring_ll128_ceiling: ByGeneration
    tree_ll128_ceiling: ByGeneration
    tree_ceiling: ByGeneration
    nvls_tree_ceiling: ByGeneration
    nvls_efficiency: Mapping[str, float]
    ring_share: ByProtocol
    tree_share: Mapping[NcclProtocol, float | None]
    tree_payload: tuple[ByProtocol, ByProtocol]
    plain_tree_share: float
    pat_share: float
    tree_correction: Mapping[NcclProtocol, tuple[float, ...]]
    num_tree_corrections: int
    ring_plateau: tuple[float, float]


def _protocols(ll: float, ll128: float, simple: float) -> ByProtocol:
    return {"LL": ll, "LL128": ll128, "Simple": simple}


_NONE = _protocols(0, 0, 0)

# fmt: off
NCCL_2_30 = Constants(
    base_latency={
        "Tree": _protocols(6.8, 14.0, 8.4), "Ring": _protocols(6.6, 14.0, 8.4),
        "CollNetDirect": _NONE, "CollNetChain": _NONE, "NVLS": _NONE, "NVLSTree": _NONE,
        "PAT": _protocols(8.0, 8.0, 8.0),
    },
    hop_latency={
        "nvlink": {
            "Tree": _protocols(0.6, 1.25, 4.0), "Ring": _protocols(0.6, 1.9, 3.4),
            "CollNetDirect": _protocols(0, 0, 3.7), "CollNetChain": _protocols(0, 0, 2.8),
            "NVLS": _protocols(0, 0, 25), "NVLSTree": _protocols(0, 0, 25), "PAT": _protocols(0, 0, 4.0),
        },
        "pci": {
            "Tree": _protocols(1.0, 1.9, 4.0), "Ring": _protocols(1.0, 2.5, 5.7),
            "CollNetDirect": _protocols(0, 0, 3.7), "CollNetChain": _protocols(0, 0, 2.8),
            "NVLS": _NONE, "NVLSTree": _NONE, "PAT": _protocols(0, 0, 4.0),
        },
        "net": {
            "Tree": _protocols(5.0, 8.5, 14.0), "Ring": _protocols(2.7, 4.0, 14.0),
            "CollNetDirect": _protocols(0, 0, 31), "CollNetChain": _protocols(0, 0, 30),
            "NVLS": _protocols(0, 0, 18), "NVLSTree": _protocols(0, 0, 20.9), "PAT": _protocols(0, 0, 14.0),
        },
    },
    ll_ceiling={
        "volta": (39.0, 39.0, 20.4), "ampere": (87.7, 22.5, 19.0),
        "hopper": (141.0, 45.0, 35.0), "blackwell": (282.0, 90.0, 70.0),
    },
    ring_ll128_ceiling={
        "volta": (20.0, 20.0, 20.0), "ampere": (20.0, 20.0, 20.0),
        "hopper": (36.7, 36.7, 36.7), "blackwell": (40.0, 40.0, 40.0),
    },
    tree_ll128_ceiling={
        "volta": (20.0, 20.0, 20.0), "ampere": (20.0, 20.0, 20.0),
        "hopper": (36.7, 36.7, 29.0), "blackwell": (55.6, 31.67, 20.0),
    },
    tree_ceiling={
        "volta": (26.5, 18.5, 10.0), "ampere": (24.0, 23.6, 17.8),
        "hopper": (38.7, 41.4, 36.0), "blackwell": (70.0, 42.8, 24.0),
    },
    nvls_tree_ceiling={
        "volta": (26.5, 18.5, 10.0), "ampere": (24.0, 23.6, 17.8),
        "hopper": (0.0, 57.7, 45.5), "blackwell": (0.0, 96.0, 80.0),
    },
    nvls_efficiency={"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74},
    ring_share=_protocols(0.5, 0.92, 1.0),
    tree_share=_protocols(0.92, 0.92, 0.92),
    tree_payload=(_protocols(1 / 3.8, 7 / 9, 1.0), _protocols(1 / 3.8, 120 / 128, 1.0)),
    plain_tree_share=0.85,
    pat_share=0.75,
    tree_correction={
        "LL": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
        "LL128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
        "Simple": (
            .9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9
        ),
    },
    num_tree_corrections=23,
    ring_plateau=(1.9, 1.4),
)
# fmt: on
