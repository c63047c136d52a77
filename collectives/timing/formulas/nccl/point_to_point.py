"""Messages from rank to rank in NCCL: an all-to-all as one group of sends and receives.

NCCL does not choose here and so has no model of time; this one is made of its constants and of how it
carries messages out.  All of a group start in one kernel.  The message to a peer takes LL up to 16 KiB, else
Simple; it is cut into parts, of 8 KiB with LL and 64 KiB with Simple at least, one for a channel, and a
channel works on eight at once.  So

    time = base latency + one hop for each turn of the channels + posting to the card for each peer on
           another node + bytes / bandwidth of the channels in use

with the base latency of a ring and a hop's latency of the protocol taken.  Inside a node the channels are
those of rings, each of which carries what NCCL's search found for one; between nodes the ranks of a node
share what their channels carry there.  What goes inside and what goes between nodes goes at once, and the
longer counts.

Assumed: equal messages, one to each peer; a channel for each of them first, more only where messages are few.

Source: NVIDIA/nccl 2.30, ``addP2pToPlan`` and ``scheduleP2pTasksToPlan`` in ``src/enqueue.cc``,
``NCCL_P2P_LL_THRESHOLD``, ``NCCL_MAX_DEV_WORK_P2P_PER_BATCH``.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.timing.formulas.nccl.constants import (
    NCCL_2_30,
    Constants,
    NcclProtocol,
    slower_than_hopper,
)
from sim.hardware import Channels, Hardware

LL_NBYTES = 1 << 14
"""Bytes of a message up to which it takes LL."""

PART_NBYTES = {"LL": 1 << 13, "Simple": 1 << 16}
"""Bytes of a message for which one more channel is taken."""

AT_ONCE = 8
"""Messages on which a channel works at the same time."""

_GBPS = 1e9
_PS_PER_US = 1e6


@dataclass(frozen=True, slots=True)
class Messages:
    """An all-to-all of *nbytes* on each rank, on nodes of *hardware*; there is more than one rank."""

    nbytes: int
    num_nodes: int
    ranks_per_node: int
    hardware: Hardware
    constants: Constants

    @property
    def num_ranks(self) -> int:
        """Number of ranks, those of all nodes."""
        return self.num_nodes * self.ranks_per_node

    @property
    def message_nbytes(self) -> int:
        """Bytes of the message to one peer."""
        return -(-self.nbytes // self.num_ranks)

    @property
    def protocol(self) -> NcclProtocol:
        """LL or Simple."""
        return "LL" if self.message_nbytes <= LL_NBYTES else "Simple"

    def latency(self, slower: float = 1.0) -> float:
        """Return microseconds that do not depend on the size; see `NcclCall.latency`."""
        base = slower * self.constants.base_latency["Ring"][self.protocol]
        hop = slower * self.constants.hop_latency[self.hardware.intra_link]["Ring"][self.protocol]
        posting = 0.0
        if self.num_nodes > 1:
            posting = self.hardware.posting_ps / _PS_PER_US * (self.num_ranks - self.ranks_per_node)
            card = self.hardware.net_latency_ps / _PS_PER_US
            hop = self.constants.hop_latency["net"]["Ring"][self.protocol]
            hop += 2 * card if self.protocol == "Simple" else card
        at_once = 2 * self._channels().count * AT_ONCE
        return base + posting + hop * -(-(self.num_ranks - 1) // at_once)

    def bandwidth(self) -> float:
        """Return 10⁹ bytes/s by which the size is divided."""
        payload = self.constants.ring_share[self.protocol]
        one_node = self.hardware.one_node
        peers = self.ranks_per_node - 1
        parts = -(-self.message_nbytes // PART_NBYTES[self.protocol])
        in_use = min(peers * max(parts, 1), one_node.count)
        inside = in_use * one_node.intra_bandwidth * payload
        seconds = peers / self.num_ranks / inside if peers else 0.0
        if self.num_nodes > 1:
            channels = self._channels()
            between = channels.count * channels.inter_bandwidth * payload / self.ranks_per_node
            seconds = max(seconds, (1 - self.ranks_per_node / self.num_ranks) / between)
        return 1 / seconds / _GBPS

    def _channels(self) -> Channels:
        found = self.hardware.one_node if self.num_nodes == 1 else self.hardware.several_nodes
        assert found is not None, "the model refuses several nodes without channels between them"
        return found


def group_call(hardware: Hardware) -> tuple[float, float]:
    """Return what a group of sends and receives takes NCCL besides its bytes, in microseconds.

    That is the base latency, as of messages above `LL_NBYTES`; and what the sender takes for posting each
    message to another node.  The rest of `Messages.latency` is of the links.
    """
    base = slower_than_hopper(hardware.generation) * NCCL_2_30.base_latency["Ring"]["Simple"]
    return base, hardware.posting_ps / _PS_PER_US
