"""NCCL's own model of time, and the algorithm and protocol that it therefore chooses.

NCCL gives each pair of algorithm and protocol a latency and a bandwidth when a communicator is made, and
at each call takes the pair for which

    time = latency + size / bandwidth

is least.  This is that model with NCCL's own constants (`collectives.timing.formulas.nccl.constants`) for the
channels that its search of the topology has found (`sim.hardware`): closed forms, fitted by NVIDIA to its
systems. It knows no link, no other traffic and no skew between ranks, and gives no schedule.  Use it to
compare with what the simulator says, or to know what stock NCCL would choose.

Assumed: nothing is set in NCCL's environment; there is one call at a time; the switches can reduce the data
where they can reduce; a plugin for switches between nodes (CollNet) has a head for every rank of a node and
knows all-gather and reduce-scatter; from Ampere on there is an NVSwitch where there is NVLink; the
communicator has twice as many channels as the search found.  NCCL computes in single precision, this in
double.

NCCL compares times as if every call took all channels, and then gives a small one fewer
(``topoGetAlgoInfo``); and its latencies are those of a Hopper, whatever the GPU.  `Prediction.seconds` is
what NCCL compares, `Prediction.likely_seconds` what the choice then takes by these two facts.  For an
all-to-all NCCL has no model; `collectives.timing.formulas.nccl.point_to_point` makes one of its constants.

Source: NVIDIA/nccl 2.30, ``ncclTopoTuneModel`` and ``ncclTopoGetAlgoTime`` in ``src/graph/tuning.cc``,
``updateCollCostTable`` in ``src/enqueue.cc``, ``ncclNvlsInit`` in ``src/transport/nvls.cc``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from collectives.errors import NotSupportedError
from collectives.timing.formulas.bandwidth import busbw
from collectives.timing.formulas.nccl.constants import (
    NCCL_2_30,
    Constants,
    NcclAlgorithm,
    NcclProtocol,
    slower_than_hopper,
)
from collectives.timing.formulas.nccl.point_to_point import Messages
from collectives.timing.formulas.nccl.terms import COLLECTIVES, NcclCall
from sim.hardware import Hardware
from sim.topology import Topology

KNOWN = (*COLLECTIVES, "all_to_all")
"""What the model answers for."""

_GBPS = 1e9
_US = 1e-6


@dataclass(frozen=True, slots=True)
class Prediction:
    """What NCCL expects of one algorithm and protocol.

    Attributes:
        collective: what is computed.
        nbytes: size of the buffer, as nccl-tests counts it.
        num_ranks: number of ranks.
        algorithm: NCCL's name of it.
        protocol: LL, LL128 or Simple.
        latency_seconds: the part that does not depend on the size.
        bandwidth: bytes/s by which the size is divided, at this size.
        likely_latency_seconds: the latency on these GPUs.
        likely_bandwidth: the bandwidth of the channels alone that a call of this size takes.
        is_last_resort: NCCL takes it only if there is nothing else.
    """

    collective: str
    nbytes: int
    num_ranks: int
    algorithm: NcclAlgorithm | Literal["P2P"]
    protocol: NcclProtocol
    latency_seconds: float
    bandwidth: float
    likely_latency_seconds: float
    likely_bandwidth: float
    is_last_resort: bool = False

    @property
    def seconds(self) -> float:
        """Expected time, by which NCCL chooses."""
        return self.latency_seconds + self.nbytes / self.bandwidth

    @property
    def likely_seconds(self) -> float:
        """Expected time on these GPUs, in the channels that a call of this size takes."""
        return self.likely_latency_seconds + self.nbytes / self.likely_bandwidth

    @property
    def rank(self) -> tuple[bool, float]:
        """By what NCCL chooses; the least is taken."""
        return (self.is_last_resort, self.seconds)

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return busbw(self.collective, self.nbytes, self.seconds, self.num_ranks)


def predict(collective: str, nbytes: int, **call: Any) -> Prediction:
    """Return what NCCL would choose; of equals, that which it considers first.

    See `table` for the arguments and errors.
    """
    return min(table(collective, nbytes, **call), key=attrgetter("rank"))


def table(
    collective: str,
    nbytes: int,
    *,
    num_nodes: int,
    ranks_per_node: int,
    hardware: Hardware,
    constants: Constants = NCCL_2_30,
    dtype: str = "float16",
    operation: str = "sum",
) -> tuple[Prediction, ...]:
    """Return all algorithms and protocols that NCCL considers, in its order.

    Args:
        collective: one of `COLLECTIVES`, or ``all_to_all``.
        nbytes: size of the buffer, as nccl-tests counts it: for all-gather and reduce-scatter, of all parts.
        num_nodes: number of nodes, at least 1.
        ranks_per_node: GPUs of each node that take part, at least 1.
        hardware: what they are.
        constants: the model's numbers.
        dtype: torch's name of the elements' type: switches reduce no int8 and no float8, and float8 goes
            round by a ring of more than eight ranks only if there is nothing else.
        operation: ``sum``, ``avg``, ``min``, ``max`` or ``product``: switches do not average, nor does PAT.

    Raises:
        NotSupportedError: NCCL's model does not know the collective, or *hardware* does not say what
            channels there are over several nodes.
        ValueError: a size or a count that cannot be.
    """
    if collective not in KNOWN:
        raise NotSupportedError(
            f"NCCL's model does not know {collective}; it knows {', '.join(KNOWN)}; use simulate()"
        )

    for name, value, least in (
        ("nbytes", nbytes, 0),
        ("num_nodes", num_nodes, 1),
        ("ranks_per_node", ranks_per_node, 1),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if num_nodes > 1 and hardware.several_nodes is None:
        raise NotSupportedError(
            f"NCCL's model on {num_nodes} nodes: the hardware names no channels between nodes; "
            "give `several_nodes`, or ask for one node"
        )

    num_ranks = num_nodes * ranks_per_node
    if num_ranks == 1:
        return (Prediction(collective, nbytes, 1, "Ring", "Simple", 0.0, math.inf, 0.0, math.inf),)
    slower = slower_than_hopper(hardware.generation)
    about = collective, nbytes, num_ranks
    if collective == "all_to_all":
        messages = Messages(nbytes, num_nodes, ranks_per_node, hardware, constants)
        latencies = (messages.latency(by) * _US for by in (1.0, slower))
        first, likely = ((latency, messages.bandwidth() * _GBPS) for latency in latencies)
        return (Prediction(*about, "P2P", messages.protocol, *first, *likely),)

    call = NcclCall(collective, nbytes, num_nodes, ranks_per_node, hardware, constants, dtype, operation)
    return tuple(
        Prediction(
            *about,
            *pair,
            call.latency(*pair) * _US,
            call.bandwidth(*pair) * _GBPS,
            call.latency(*pair, slower) * _US,
            call.bandwidth(*pair, call.part_of_channels(*pair)) * _GBPS,
            call.is_last_resort(pair[0]),
        )
        for pair in call.candidates()
    )


def predict_on(
    topology: Topology,
    hosts: Sequence[int],
    collective: str,
    nbytes: int,
    algorithm: NcclAlgorithm | Literal["P2P"] | None = None,
) -> Prediction:
    """Return what NCCL would choose for ranks at places of *topology*; see `table`.

    Args:
        topology: says how many ranks share a node, and the hardware.  Its links are not looked at.
        hosts: the place of each rank of the group.
        collective: one of `KNOWN`.
        nbytes: size of the buffer, as nccl-tests counts it.
        algorithm: the only one that it may choose, if any.

    Raises:
        NotSupportedError: the topology does not say what its hardware is; the nodes have different
            numbers of ranks, or their ranks do not follow each other; NCCL would not consider
            *algorithm*; or as for `table`.
    """
    what = f"NCCL's model on {topology.name}"
    if topology.hardware is None:
        raise NotSupportedError(
            f"{what}: the network says nothing of its hardware; add a [hardware] table to its file"
        )

    nodes = [host // topology.ranks_per_node for host in hosts]
    sizes = Counter(nodes)
    if len(set(sizes.values())) > 1:
        (big, most), (small, least) = sizes.most_common(1)[0], sizes.most_common()[-1]
        raise NotSupportedError(
            f"{what}: node {big} has {most} ranks and node {small} has {least}; "
            "the model wants equally many on each"
        )
    if len(list(groupby(nodes))) > len(sizes):
        raise NotSupportedError(
            f"{what}: the ranks of a node do not follow each other; the model is for placement 'packed'"
        )

    candidates = table(
        collective,
        nbytes,
        num_nodes=len(sizes),
        ranks_per_node=len(nodes) // len(sizes),
        hardware=topology.hardware,
    )

    allowed = [one for one in candidates if algorithm in (None, one.algorithm)]
    if not allowed:
        known = ", ".join(dict.fromkeys(one.algorithm for one in candidates))
        raise NotSupportedError(f"{what}: NCCL does not consider {algorithm} here; it considers {known}")
    return min(allowed, key=attrgetter("rank"))
