"""Order of issue: calls over NCCL that ranks issue in a circle, so that they may wait for ever.

NCCL's kernels wait on the device for those of other ranks.  Calls of one communicator are carried out in the
order of their issue; of two communicators, kernels that wait can keep those of the other from the device.  So
a rank that has issued a call may get no further before the others of that call have come to it.  Waits do not
make a circle right: a rank that waits in between makes the hang certain.  Virtual time goes through it, as
each group has streams of its own, and so do most real runs.

Each rank therefore has a queue of what it has issued, whose first call waits for its other ranks: a
collective and a receive for all of them, a send only if the message is larger than NCCL's buffers.  What goes
to the backend as one batch is one place of the queue.  Where a rank waits for one that has issued the call
behind another, which waits in turn, and so on back to the first, there is a circle: of two communicators in
opposite order, of any number of them and of ranks, of collectives and messages.

Which communicator: torch has one for each group, and for messages outside `batch_isend_irecv` one for each
pair of ranks, but where ``init_process_group`` was given a ``device_id``.  A pair's is made at its first
message, for which both ranks wait.

Sources: NCCL user guide, "Using multiple NCCL communicators concurrently" and ``NCCL_BUFFSIZE``;
``ProcessGroupNCCL::pointToPoint`` of torch 2.13.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from sim.cluster import RankThread

_MAX_PENDING = 64
"""Places of a rank's queue, and calls of a channel, that are remembered."""
_BUFFERED = 4 << 20
"""Bytes of a message that NCCL's buffers take while nobody receives it: ``NCCL_BUFFSIZE`` by default."""

_NUMBERS = {2: "two", 3: "three", 4: "four"}


@dataclass(eq=False)
class _Call:
    """A call that several ranks make.

    Attributes:
        communicator: on which it goes.
        size: how many ranks make it.
        arrived: those that have issued nothing before it that still waits.
        behind: those that have, each with its issue.
    """

    communicator: Hashable
    size: int
    arrived: set[int] = field(default_factory=set)
    behind: dict[int, _Issue] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all have come to it."""
        return len(self.arrived) >= self.size


class _Issue(NamedTuple):
    """A call as one rank issues it: whether it waits for the others, what it is in words, and its line."""

    call: _Call
    waits: bool
    says: str
    place: str


class IssueOrder:
    """Compares the order in which the ranks of one run issue calls over NCCL."""

    def __init__(self) -> None:
        self._calls: defaultdict[Hashable, dict[int, _Call]] = defaultdict(dict)
        self._counts: Counter[tuple[int, Hashable]] = Counter()
        self._queues: defaultdict[int, deque[list[_Issue]]] = defaultdict(deque)
        self._batches: dict[int, list[_Issue]] = {}
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
        """Put *call* in its rank's queue, if it goes over NCCL."""
        backend = call.group.members.stands_for(call.group.backend_asked_for, call.device_type("cuda"))
        is_of_any = call.operation == "recv" and call.peer is None  # which NCCL does not have
        if backend != "nccl" or call.peer == call.group.rank() or is_of_any:
            return
        rank = call.rank_thread.rank
        for issue in self._issues(call, rank):
            self._add(rank, issue, call.is_batched)

    def joined(self, rank_thread: RankThread, *works: object) -> None:
        """Note that a rank's batch is whole."""
        self._batches.pop(rank_thread.rank, None)

    def _issues(self, call: WatchedCall, rank: int) -> Iterator[_Issue]:
        """Yield what a rank issues by *call*; first the making of a pair's communicator."""
        key, hosts = call.key, call.hosts
        if call.peer is None:
            says = f"{call.operation} of {_spell(call)}"
            yield _Issue(self._numbered(rank, key, (key, None), len(hosts)), True, says, call.place)
            return
        peer, sends = hosts[call.peer], call.operation == "send"
        is_of_group = call.is_batched or call.group.bound_device_id is not None
        pair = frozenset((rank, peer))
        communicator = key if is_of_group else (key, pair)
        says = f"{call.operation} {'to' if sends else 'from'} rank {peer}"
        if not is_of_group and not self._counts[rank, (communicator, "made")]:
            made = self._numbered(rank, communicator, (communicator, "made"), 2)
            yield _Issue(made, True, says, call.place)
        channel = (communicator, (rank, peer) if sends else (peer, rank))
        waits = not sends or sum(tensor.nbytes for tensor in call.tensors) > _BUFFERED
        yield _Issue(self._numbered(rank, communicator, channel, 2), waits, says, call.place)

    def _numbered(self, rank: int, communicator: Hashable, channel: Hashable, size: int) -> _Call:
        """Return the next call of a rank in a channel: collectives of a group, or messages one way."""
        number, calls = self._counts[rank, channel], self._calls[channel]
        self._counts[rank, channel] += 1
        call = calls.setdefault(number, _Call(communicator, size))
        if len(call.arrived) + len(call.behind) + 1 >= size:
            del calls[number]  # it is the last to issue it
        elif len(calls) > _MAX_PENDING:
            del calls[min(calls)]
        return call

    def _add(self, rank: int, issue: _Issue, is_batched: bool) -> None:
        """Put *issue* at the end of a rank's queue, or into its batch there, and look for circles."""
        queue = self._queues[rank]
        batch = self._batches.pop(rank, None)
        if not is_batched or batch is None or not queue or queue[-1] is not batch:
            batch = []
            queue.append(batch)
        batch.append(issue)
        if is_batched:
            self._batches[rank] = batch
        issue.call.behind[rank] = issue
        moved = {rank}
        if len(queue) == 1:
            moved |= self._advance([rank])
        elif len(queue) > _MAX_PENDING:
            moved |= self._go_past(rank)
        for other in moved:
            while (circle := self._circle(other)) is not None:
                self._note(circle)
                self._go_past(other)

    def _advance(self, ranks: list[int]) -> set[int]:
        """Let *ranks* go on as far as they can, and others that this lets go on; return them all."""
        moved = set()
        while ranks:
            rank = ranks.pop()
            moved.add(rank)
            queue = self._queues[rank]
            while queue:
                for issue in queue[0]:
                    ranks += self._arrive(rank, issue)
                if any(issue.waits and not issue.call.is_complete for issue in queue[0]):
                    break
                queue.popleft()
        return moved

    def _arrive(self, rank: int, issue: _Issue) -> set[int]:
        """Let a rank come to a call, once; return whom that lets go on."""
        if issue.call.behind.pop(rank, None) is None:
            return set()
        issue.call.arrived.add(rank)
        return issue.call.arrived - {rank} if issue.call.is_complete else set()

    def _go_past(self, rank: int) -> set[int]:
        """Let a rank go past the first place of its queue, whatever it waits for; return who then goes on."""
        self._queues[rank].popleft()
        return self._advance([rank])

    def _circle(self, first: int) -> list[tuple[int, _Issue, _Issue]] | None:
        """Return ranks that wait for each other, from *first* on, if there are any.

        With each is what it waits in, and what it has issued behind that and another of them waits in.
        """
        came: dict[int, tuple[int, _Issue]] = {}  # who waits for a rank, and in what
        ranks = [first]
        while ranks and first not in came:
            rank = ranks.pop()
            for issue in self._queues[rank][0] if self._queues[rank] else ():
                if issue.waits:
                    ranks += issue.call.behind.keys() - came.keys()
                    came |= {other: (rank, issue) for other in issue.call.behind if other not in came}
        if first not in came:
            return None
        links = [(first, *came[first])]
        while links[-1][1] != first:
            waiting = links[-1][1]
            links.append((waiting, *came[waiting]))
        waits_in = {waiting: issue for _, waiting, issue in links}
        return [(rank, waits_in[rank], issue.call.behind[rank]) for rank, _, issue in links]

    def _note(self, circle: Sequence[tuple[int, _Issue, _Issue]]) -> None:
        """Note a circle, of communicators of which none is known."""
        communicators = frozenset(issue.call.communicator for _, *both in circle for issue in both)
        if communicators in self._found:
            return
        ways = [
            f"rank {rank} issues {one.says} ({one.place}) before {two.says} ({two.place})"
            for rank, one, two in circle
        ]
        number = _NUMBERS.get(len(communicators), str(len(communicators)))
        why = (
            "NCCL carries out calls of one communicator in the order of their issue"
            if len(communicators) == 1
            else f"kernels of {number} communicators of NCCL can keep each other from the GPU"
        )
        may_wait = "both" if len(circle) == 2 else "all"
        self._found[communicators] = (
            frozenset(issue.place for _, *both in circle for issue in both),
            f"{'; '.join(ways)}: {why}, so {may_wait} may wait for ever; "
            "issue them in one order on every rank",
        )


def _spell(call: WatchedCall) -> str:
    is_all = len(call.hosts) == call.rank_thread.cluster.topology.num_ranks
    return "all ranks" if is_all else spell_ranks(call.hosts)
