"""NCCL's choice on the links: the algorithm and channels that NCCL would take, as programs of ours.

NCCL's own model (`collectives.timing.formulas.nccl.model`) says which algorithm is expected to be fastest;
how long that takes is then a matter of the network's links, of all other traffic, and of when ranks come.

    NCCL                 here
    Ring                 ``ring``, for broadcast and reduce ``chain``
    Tree                 ``double_binary_tree``, in segments as long as NCCL's chunks, at most 32 of them
    PAT                  ``pat``, of all-gather and reduce-scatter with one rank on each of several nodes, in
                         messages of as many parts as NCCL's
    its channels         as many, but no more than enter and leave nodes by different ranks, unless
                         connections are hashed (ECMP), where further ones take other paths
    all-to-all, gather,  ``direct``: NCCL has messages from rank to rank for these
    scatter

Assumed: switches do not reduce, so NVLS and CollNet are no candidates; a tree is one over all ranks, where
NCCL's is a chain inside a node; PAT's parts are not cut into chunks, which NCCL sends on one by one; where
nothing is hashed, further channels, which repeat an order, would share its links and change nothing but the
number of chunks; protocols change no message (their share of a link is a matter of
`collectives.timing.formulas.nccl.protocol`).  Where NCCL's model does not apply, such as nodes with different
numbers of ranks, it is the cheapest (`collectives.timing.cost`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import DEFAULTS, Selector
from collectives.errors import NotSupportedError
from collectives.program import Algorithm
from collectives.program.channels import in_channels
from collectives.program.placement import members_per_node, on_nodes
from collectives.timing.formulas.nccl.constants import NcclAlgorithm, NcclProtocol
from collectives.timing.formulas.nccl.model import Prediction, predict_on
from collectives.timing.formulas.nccl.terms import COLLECTIVES, THREAD_THRESHOLD, THREADS
from sim.topology import Topology

_DIRECT = ("all_to_all", "gather", "scatter")

_CHUNK_NBYTES: Mapping[NcclProtocol, int] = {"LL": 1 << 15, "LL128": 576_000, "Simple": 1 << 19}
"""Of data in a step of a channel's buffer, which has 8 (``NCCL_STEPS``): half of 512 KiB with LL, 15/16 of
4.9 MB with LL128, 4 MiB with Simple (``DEFAULT_LL_BUFFSIZE`` and so on, ``src/init.cc``)."""

_PAT_NBYTES = THREADS["Simple"] * THREAD_THRESHOLD["Simple"]
"""For each of which a call by PAT takes one more channel."""

_MAX_SEGMENTS = 32

_SMALL_NBYTES = 1 << 20
"""Below, a broadcast or reduce is one chain: NCCL, too, takes fewer channels for small calls."""


class ChosenByNccl:
    """What NCCL would choose for a group, by size; a `Selector`.

    Args:
        topology: the network, which names its hardware.
        hosts: the place of each rank of the group in it.
        otherwise: chooses where NCCL's model does not apply.

    Raises:
        NotSupportedError: the network does not say what its hardware is.
    """

    def __init__(self, topology: Topology, hosts: Sequence[int], otherwise: Selector) -> None:
        if topology.hardware is None:
            raise NotSupportedError(
                f"NCCL's choice on {topology.name}: the network says nothing of its hardware; add a "
                "[hardware] table to its file, or choose an algorithm, such as auto"
            )
        self._topology = topology
        self._hosts = tuple(hosts)
        self._otherwise = otherwise
        self._known: dict[tuple[str, str, bool], Algorithm] = {}

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return the program for *nbytes* bytes, as nccl-tests counts them."""
        if collective in _DIRECT:
            return self._program(collective, "direct")
        if collective not in COLLECTIVES:
            return self._program(collective, DEFAULTS[collective])
        try:
            expected = [self._expected(collective, nbytes, kind) for kind in ("Ring", "Tree", "PAT")]
        except NotSupportedError:
            return self._otherwise.select(collective, nbytes)
        best = min((one for one in expected if one is not None), key=lambda one: one.seconds)
        if best.algorithm == "Tree":
            segments = nbytes // (2 * self._num_channels() * self._chunk_nbytes(nbytes, best.protocol))
            power_of_two = 1 << max(0, segments.bit_length() - 1)
            return self._program(
                collective, f"double_binary_tree:segments={min(power_of_two, _MAX_SEGMENTS)}"
            )
        if best.algorithm == "PAT":
            return self._program(collective, f"pat:aggregation={self._aggregation(collective, nbytes)}")
        if collective in ("broadcast", "reduce"):
            return self._program(collective, "chain", in_one_channel=nbytes < _SMALL_NBYTES)
        return self._program(collective, "ring")

    @property
    def _is_alone_on_nodes(self) -> bool:
        """Whether there are several ranks, each the only one on its node."""
        return len(self._nodes) == len(self._hosts) > 1

    @property
    def _nodes(self) -> set[int]:
        return {host // self._topology.ranks_per_node for host in self._hosts}

    def _expected(self, collective: str, nbytes: int, kind: NcclAlgorithm) -> Prediction | None:
        """Return what NCCL expects of its algorithm *kind*; None where it has none of that."""
        if kind not in COLLECTIVES[collective] or (kind == "PAT" and not self._is_alone_on_nodes):
            return None
        return predict_on(self._topology, self._hosts, collective, nbytes, kind)

    def _aggregation(self, collective: str, nbytes: int) -> int:
        """Return how many parts share a message of PAT, in the channels of a call of this size.

        As many as fill a chunk, and eight times as many, for that many chunks the buffer holds; half of all
        at most.

        Source: NVIDIA/nccl 2.30, ``PatRSAlgorithm`` and ``PatAGAlgorithm`` in ``src/include/collectives.h``,
        ``calcCollChunking`` and ``topoGetAlgoInfo`` in ``src/enqueue.cc``.
        """
        hardware = self._topology.hardware
        assert hardware is not None
        assert hardware.several_nodes is not None, "PAT is a candidate over several nodes"
        most = hardware.several_nodes.count
        of_channel = nbytes // min(max(1, nbytes // _PAT_NBYTES), most)
        chunk, smallest, parts = _CHUNK_NBYTES["Simple"], 1 << 16, 32 if collective == "all_gather" else 16
        while chunk * parts > of_channel and chunk > smallest:
            chunk //= 2

        aggregation, part = 1, max(1, of_channel // len(self._hosts))
        while chunk // (part * aggregation) >= 2 and aggregation < len(self._hosts) // 2:
            aggregation *= 2
        for _ in range(3):
            if aggregation < len(self._hosts) // 2:
                aggregation *= 2
        return aggregation

    def _chunk_nbytes(self, nbytes: int, protocol: NcclProtocol) -> int:
        """Return how many bytes a tree sends on at once.

        Source: NVIDIA/nccl 2.30, ``src/enqueue.cc``, ``calcCollChunking``.
        """
        chunk = _CHUNK_NBYTES[protocol]
        if protocol != "LL128":
            return chunk
        per_node = members_per_node(self._hosts, self._topology.ranks_per_node)
        steps = len(self._nodes).bit_length() + 0.1 * per_node
        for factor, least in ((64, 1 << 17), (16, 1 << 15)):
            while nbytes // (self._num_channels() * chunk) < steps * factor / per_node and chunk > least:
                chunk //= 2
        return chunk

    def _program(self, collective: str, name: str, in_one_channel: bool = False) -> Algorithm:
        if (collective, name, in_one_channel) not in self._known:
            program = resolve_algorithm(name, collective)
            channels = 1 if in_one_channel or collective in _DIRECT else self._num_channels()
            if channels > 1:
                program = in_channels(program, channels)
            bound = on_nodes(program, self._topology.ranks_per_node, self._hosts)
            self._known[collective, name, in_one_channel] = bound
        return self._known[collective, name, in_one_channel]

    def _num_channels(self) -> int:
        hardware = self._topology.hardware
        assert hardware is not None
        in_one_node = len(self._nodes) == 1
        channels = hardware.one_node if in_one_node else hardware.several_nodes
        per_node = members_per_node(self._hosts, self._topology.ranks_per_node)
        if channels is None or in_one_node:
            return 1
        return channels.count if self._topology.routing.by_channel else min(channels.count, per_node)
