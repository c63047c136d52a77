"""Order of issue: calls over NCCL that two ranks issue in opposite order, so that they may wait for ever.

NCCL's kernels wait on the device for those of other ranks.  Calls of one communicator are carried out in the
order of their issue; of two communicators, kernels that wait can keep those of the other from the device.  So
each rank has to issue calls that it shares with another in the same order.  Waits do not make the opposite
order right: a rank that waits in between makes the hang certain.  Virtual time goes through it, as each group
has streams of its own, and so do most real runs.

Calls are numbered by *channel*: the collectives of a communicator, or its messages from one rank to
another. A rank notes with each call how many calls it has issued in each other channel before; where two
ranks note different numbers, they have issued the call, and one of the other channel, in opposite order.
Compared are pairs of channels that share two ranks, of which one at least has collectives: a small message
fits into NCCL's buffers, and its sender waits for nobody. A circle of three channels that share one rank
each is not seen.

Which communicator: torch has one for each group, and for messages outside `batch_isend_irecv` one for each
pair of ranks, but where ``init_process_group`` was given a ``device_id``.

Source: NCCL user guide, "Using multiple NCCL communicators concurrently"; ``ProcessGroupNCCL::pointToPoint``
of torch 2.13.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.watched_calls import WatchedCall

_MAX_PENDING = 64
"""Calls of a channel that are remembered."""


@dataclass(eq=False)
class _Channel:
    """Calls that ranks match by their number.

    Attributes:
        communicator: on which they go.
        members: the ranks that make them.
        has_messages: they are messages.
        partners: channels with which it is compared.
        calls: by number, of each rank that has issued it, how many calls of other channels came before it.
    """

    communicator: Hashable
    members: frozenset[int]
    has_messages: bool
    partners: set[_Channel] = field(default_factory=set)
    calls: dict[int, dict[int, dict[_Channel, int]]] = field(default_factory=dict)


class _Issue(NamedTuple):
    """A call as one rank issues it, in words, and its line."""

    channel: _Channel
    says: str
    place: str


@dataclass
class _Issued:
    """What one rank has issued.

    Attributes:
        by_channel: its last calls in each channel.
        counts: how many in all.
    """

    by_channel: dict[_Channel, list[_Issue]] = field(default_factory=dict)
    counts: Counter[_Channel] = field(default_factory=Counter)

    def add(self, issue: _Issue) -> int:
        """Add a call; return its number in its channel."""
        number = self.counts[issue.channel]
        self.counts[issue.channel] += 1
        kept = self.by_channel.setdefault(issue.channel, [])
        kept.append(issue)
        del kept[:-_MAX_PENDING]
        return number

    def at(self, channel: _Channel, number: int) -> _Issue | None:
        """Return call *number* of *channel*; None if it is to come, or forgotten."""
        kept = self.by_channel.get(channel, [])
        place = number - (self.counts[channel] - len(kept))
        return kept[place] if 0 <= place < len(kept) else None


class IssueOrder:
    """Compares the order in which the ranks of one run issue calls over NCCL."""

    def __init__(self) -> None:
        self._channels: dict[Hashable, _Channel] = {}
        self._of_member: defaultdict[int, list[_Channel]] = defaultdict(list)
        self._issued: defaultdict[int, _Issued] = defaultdict(_Issued)
        self._found: dict[frozenset[Hashable], tuple[frozenset[str], str]] = {}

    def mistakes(self) -> Iterator[str]:
        """Yield what was found, of calls from the same lines the first."""
        by_lines: defaultdict[frozenset[str], list[str]] = defaultdict(list)
        for lines, text in self._found.values():
            by_lines[lines].append(text)
        for texts in by_lines.values():
            more = f" (on {len(texts)} communicators in all)" if len(texts) > 1 else ""
            yield texts[0] + more

    def began(self, call: WatchedCall) -> None:
        """Compare *call* with those of the other ranks, if it goes over NCCL."""
        backend = call.group.members.stands_for(call.group.backend_asked_for, call.device_type("cuda"))
        is_of_any = call.operation == "recv" and call.peer is None  # which NCCL does not have
        if backend == "nccl" and call.peer != call.group.rank() and not is_of_any:
            rank = call.rank_thread.rank
            self._compare(rank, self._issue(call, rank))

    def _issue(self, call: WatchedCall, rank: int) -> _Issue:
        key, hosts = call.key, call.hosts
        if call.peer is None:
            channel = self._channel((key, None), key, hosts, has_messages=False)
            return _Issue(channel, f"{call.operation} of {_spell(call)}", call.place)
        ends = rank, hosts[call.peer]
        is_of_group = call.is_batched or call.group.bound_device_id is not None
        communicator = key if is_of_group else (key, frozenset(ends))
        lane = ends if call.operation == "send" else ends[::-1]
        says = f"{call.operation} {'to' if call.operation == 'send' else 'from'} rank {ends[1]}"
        channel = self._channel((communicator, lane), communicator, ends, has_messages=True)
        return _Issue(channel, says, call.place)

    def _channel(
        self, key: Hashable, communicator: Hashable, members: Sequence[int], *, has_messages: bool
    ) -> _Channel:
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(communicator, frozenset(members), has_messages)
            shared = Counter(other for rank in channel.members for other in self._of_member[rank])
            for other, ranks in shared.items():
                if ranks > 1 and not (has_messages and other.has_messages):
                    channel.partners.add(other)
                    other.partners.add(channel)
            for rank in channel.members:
                self._of_member[rank].append(channel)
        return channel

    def _compare(self, rank: int, issue: _Issue) -> None:
        """Compare a call of *rank* with those of the others, for each other channel with one that has it."""
        issued, channel = self._issued[rank], issue.channel
        number = issued.add(issue)
        mine = {other: count for other, count in issued.counts.items() if other in channel.partners}
        calls = channel.calls.setdefault(number, {})
        for other in {other for known in calls.values() for other in known} | mine.keys():
            peer = next((one for one in calls if one in other.members), None)
            if peer is None or rank not in other.members:
                continue
            theirs = calls[peer].get(other, 0)
            if theirs < mine.get(other, 0):  # the last of the four calls sees it; those before may not know
                self._note(peer, rank, (channel, number), (other, theirs))
        calls[rank] = mine
        if len(calls) == len(channel.members):
            del channel.calls[number]
        elif len(channel.calls) > _MAX_PENDING:
            del channel.calls[min(channel.calls)]

    def _note(self, rank: int, peer: int, first: tuple[_Channel, int], second: tuple[_Channel, int]) -> None:
        """Note that *rank* issues *first* before *second*, if it has, and *peer* second before first."""
        communicators = frozenset({first[0].communicator, second[0].communicator})
        mine = [self._issued[rank].at(*call) for call in (first, second)]
        theirs = [self._issued[peer].at(*call) for call in (second, first)]
        if communicators in self._found or None in (*mine, *theirs):
            return
        ways = [
            f"rank {own} issues {one.says} ({one.place}) before {two.says} ({two.place})"
            for own, (one, two) in ((rank, mine), (peer, theirs))
            if one is not None and two is not None
        ]
        why = (
            "NCCL carries out calls of one communicator in the order of their issue"
            if len(communicators) == 1
            else "kernels of two communicators of NCCL can keep each other from the GPU"
        )
        self._found[communicators] = (
            frozenset(one.place for one in (*mine, *theirs) if one is not None),
            f"{'; '.join(ways)}: {why}, so both may wait for ever; issue them in one order on every rank",
        )


def _spell(call: WatchedCall) -> str:
    is_all = len(call.hosts) == call.rank_thread.cluster.topology.num_ranks
    return "all ranks" if is_all else spell_ranks(call.hosts)
