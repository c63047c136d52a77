"""Exchange of data between rank threads, logically: when the last has called, in no virtual time.

On ranks with streams the time of a collective is a matter of sizes (`collectives.virtual.group_calls.calls`),
and its data are exchanged apart from that.  A thread that needs what others give waits until they have
called, not until their messages have arrived: virtual time passes elsewhere.

What ranks get is, to the bit, what the programs of rank threads without streams give.  Members of a group
that have no thread of their own (folded ranks) give what the rank gives that stands for them.  Tensors on
the device ``meta`` have no values: whatever depends on one is not known either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import simpy
import torch

from collectives.catalogue.selectors import Selector
from collectives.communicators.requests import Request, flat
from collectives.errors import NotSupportedError
from collectives.execution.blame import spell_ranks
from collectives.execution.call import Call
from collectives.virtual.folding.classes import Classes
from collectives.virtual.folding.partitions import Hosts
from collectives.virtual.group_calls.family import Ordinal
from collectives.virtual.group_calls.results import (
    depends_on_order,
    given_by,
    parts_of,
    results_of,
)
from collectives.virtual.group_calls.untimed import carry_out_together
from sim.cluster import RankThread
from sim.cluster.surroundings import OfCluster


@dataclass(eq=False)
class Contribution:
    """What one rank thread has called: its part of a call.

    Attributes:
        request: its tensors; on ``meta`` where they have no values.
        is_known: whether its result has values, once it is there.
        error: what went wrong, if anything.
        is_there: whether the result is in place.
        arrived: fires then, if somebody waits for it.
    """

    request: Request
    is_known: bool = False
    error: Exception | None = None
    is_there: bool = False
    arrived: simpy.Event | None = None


@dataclass(frozen=True)
class _Members:
    """The members of a group, and whose threads stand for them, by their numbers in the run."""

    hosts: Hosts
    represented_by: tuple[int, ...]
    awaited: frozenset[int]
    place: Mapping[int, int]


@dataclass
class _Meeting:
    """One call of a family of groups: what has been brought in by rank, and the groups that wait."""

    group: tuple[Hosts, Ordinal]
    call: Call
    selector: Selector
    contributions: dict[int, Contribution] = field(default_factory=dict)
    waiting: dict[Hosts, None] = field(default_factory=dict)


class Exchanges(OfCluster):
    """The data of all calls in one run."""

    def __init__(self, env: simpy.Environment, classes: Classes) -> None:
        self.env = env
        self.classes = classes
        self._meetings: dict[tuple[Hashable, int], _Meeting] = {}
        self._members: dict[Hosts, _Members] = {}
        self._first_siblings: dict[tuple[Hosts, int], Hosts] = {}

    def join(
        self, hosts: Hosts, ordinal: Ordinal, rank: int, request: Request, call: Call, selector: Selector
    ) -> Contribution:
        """Bring in what *rank* of a group has called; whoever comes last puts all results in place."""
        sends = call.lane is not None and call.lane[0] == rank
        contribution = _sent(request) if sends else Contribution(request)
        key = self._family(hosts, ordinal), call.fingerprint()
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _Meeting((hosts, ordinal), call, selector)
        meeting.contributions[hosts[rank]] = contribution
        meeting.waiting[hosts] = None
        self._complete(key, meeting)
        return contribution

    def representatives_changed(self) -> None:
        """Note that other threads stand for some ranks from now on."""
        self._members.clear()
        for key, meeting in list(self._meetings.items()):
            self._complete(key, meeting)

    def absent(self, hosts: Hosts, ordinal: Ordinal, call: Call) -> list[int]:
        """Return which ranks have not come to a call, by number in the run."""
        meeting = self._meetings.get((self._family(hosts, ordinal), call.fingerprint()))
        return [] if meeting is None else sorted(self._awaited(hosts, call) - meeting.contributions.keys())

    def _family(self, hosts: Hosts, ordinal: Ordinal) -> Hashable:
        """Return what is the same for all groups that were made together with one."""
        if not self.classes.folded:
            return hosts, ordinal
        first = self._first_siblings.get((hosts, ordinal[0]))
        if first is None:
            first = self.classes.partitions.of(hosts, ordinal[0]).groups[0]
            self._first_siblings[hosts, ordinal[0]] = first
        return first, ordinal

    def _members_of(self, hosts: Hosts) -> _Members:
        members = self._members.get(hosts)
        if members is None:
            represented_by = tuple(map(self.classes.representative, hosts))
            place = {host: rank for rank, host in enumerate(hosts)}
            members = _Members(hosts, represented_by, frozenset(represented_by), place)
            self._members[hosts] = members
        return members

    def _awaited(self, hosts: Hosts, call: Call) -> frozenset[int]:
        """Return whose threads have to come to a call, by number in the run."""
        members = self._members_of(hosts)
        if call.lane is None:
            return members.awaited
        return frozenset(members.represented_by[rank] for rank in call.lane[:2])

    def _complete(self, key: tuple[Hashable, int], meeting: _Meeting) -> None:
        """Put the results of those groups in place of which all have come."""
        come = meeting.contributions.keys()
        for hosts in [hosts for hosts in meeting.waiting if self._awaited(hosts, meeting.call) <= come]:
            del meeting.waiting[hosts]
            _put_in_place(self._members_of(hosts), meeting)
        if not meeting.waiting and all(rank in come for rank in self._speakers(meeting)):
            del self._meetings[key]

    def _speakers(self, meeting: _Meeting) -> Iterator[int]:
        """Yield the ranks with threads that take part in sibling groups, where ranks are folded.

        What others have brought in is kept for them, as it may stand for members of their groups.
        """
        if not self.classes.folded:
            return
        lane, (hosts, ordinal) = meeting.call.lane, meeting.group
        for group in self.classes.partitions.of(hosts, ordinal[0]).groups:
            taking_part = group if lane is None else (group[lane[0]], group[lane[1]])
            yield from (rank for rank in taking_part if self.classes.representative(rank) == rank)


def wait_for(contribution: Contribution, rank_thread: RankThread, describe: Callable[[], str]) -> None:
    """Return when the result of *contribution* is in place; virtual time may pass elsewhere meanwhile.

    Raises:
        CollectiveError: the ranks of the call do not fit each other.
    """
    if not contribution.is_there:
        contribution.arrived = simpy.Event(rank_thread.cluster.env)
        rank_thread.wait(contribution.arrived, describe)
    if contribution.error is not None:
        raise contribution.error


def describe_absent(exchanges: Exchanges, hosts: Hosts, ordinal: Ordinal, call: Call) -> str:
    """Return whom *call* waits for, in words."""
    absent = exchanges.absent(hosts, ordinal, call)
    return f"{call}: waits for {spell_ranks(absent)} to call" if absent else str(call)


def _sent(request: Request) -> Contribution:
    """Return what a sender brings: a copy, so that its buffer is free at once."""
    tensor = request.given
    assert tensor is not None
    known = not tensor.is_meta
    copied = Request(request.collective, request.count, request.dtype, lane=request.lane)
    copied.given = flat(tensor).clone() if known else tensor
    return Contribution(copied, is_known=known, is_there=True)


def _put_in_place(members: _Members, meeting: _Meeting) -> None:
    """Put the results of all threads of one group in place, or what went wrong."""
    own = {
        members.place[host]: contribution
        for host, contribution in meeting.contributions.items()
        if host in members.place
    }
    try:
        outputs = [contribution.request.output for contribution in own.values()]
        with torch.inference_mode(any(one is not None and one.is_inference() for one in outputs)):
            if meeting.call.lane is None:
                _carry_out(members, meeting, own)
            else:
                _pass_message(members, meeting, own)
    except Exception as error:
        for contribution in own.values():
            contribution.error = error
    for contribution in own.values():
        contribution.is_there = True
        if contribution.arrived is not None and not contribution.arrived.triggered:
            contribution.arrived.succeed()


def _pass_message(members: _Members, meeting: _Meeting, own: Mapping[int, Contribution]) -> None:
    assert meeting.call.lane is not None
    source, destination, _ = meeting.call.lane
    receiver = own.get(destination)
    if receiver is None or source == destination:
        return
    sent = meeting.contributions[members.represented_by[source]].request.given
    assert sent is not None
    receiver.is_known = not sent.is_meta
    if receiver.is_known:
        _finish(receiver.request, sent, 1)


def _carry_out(members: _Members, meeting: _Meeting, own: Mapping[int, Contribution]) -> None:
    """Put the results of a collective in place: those of the members *own*, which have threads."""
    call, by_host = meeting.call, members.represented_by
    requests = {host: meeting.contributions[host].request for host in members.awaited}
    given = _given(call, members, requests)
    known = not any(tensor.is_meta for tensor in given.values())
    for contribution in own.values():
        contribution.is_known = known
    if not known or not given:
        return

    first = next(iter(requests.values()))
    if by_host == members.hosts and depends_on_order(first):
        carry_out_together([requests[host] for host in by_host], meeting.selector)
        return
    if first.splits is not None:
        results = parts_of(call, [requests[host] for host in by_host])
    else:
        flat_given = {host: flat(tensor) for host, tensor in given.items()}
        results = results_of(first, [flat_given.get(host) for host in by_host])
    for rank, contribution in own.items():
        _finish(contribution.request, results(rank), len(by_host))


def _given(call: Call, members: _Members, requests: Mapping[int, Request]) -> dict[int, torch.Tensor]:
    """Return what is given to a collective, by the thread that gives it.

    Raises:
        NotSupportedError: a member gives nothing because a thread stands for it that gives nothing.
    """
    needed = members.awaited
    if call.collective == "barrier":
        needed = frozenset()
    elif call.collective in ("broadcast", "scatter"):
        assert call.root is not None
        needed = frozenset((members.represented_by[call.root],))

    given = {}
    for host in needed:
        tensor = given_by(requests[host])
        if tensor is None:
            raise NotSupportedError(
                f"{call}: rank {host} stands for ranks that give something here, and gives nothing itself; "
                "run with fold off"
            )
        given[host] = tensor
    return given


def _finish(request: Request, result: torch.Tensor | None, world_size: int) -> None:
    if request.output is not None and not request.output.is_meta:
        request.finish(result, world_size)
