"""Launcher of ranks with streams: time by sizes on a communication stream, data apart from it.

A call is issued on the communication stream of its lane, after the stream that issues it, and the thread goes
on.  To wait for it makes the current stream wait, not the host; the thread itself waits only until the data
are there, which takes no virtual time (`collectives.virtual.group_calls.exchange`).  The host waits, too, for
a barrier, and where the script has asked for that: over Gloo, or by ``TORCH_NCCL_BLOCKING_WAIT``.  Tensors of
the CPU on a rank that has others on its device are the host's: their calls begin when the host issues them,
and the host alone waits.

Messages from one rank to another under one tag are a lane of their own.  What is sent is copied when the
sender calls, so that a sender never waits for its receiver's thread.

Source: ``ProcessGroupNCCL::WorkNCCL::synchronizeInternal`` of torch (the current stream waits for the end's
event, the host only under blocking wait and after a barrier).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from collectives.catalogue.selectors import Selector, is_one_kernel
from collectives.communicators.dispatch_modes import calls_hidden_from_modes
from collectives.communicators.programs import algorithm_of
from collectives.communicators.requests import Request
from collectives.execution.blame import Report
from collectives.execution.call import Call, RecentCalls
from collectives.execution.work import Work
from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.torch_backend.rows import Pair
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.folding.divisions import (
    NOT_COMPARED,
    Shares,
    is_of_root,
    may_be_objects,
    objects_given,
)
from collectives.virtual.gpu.door import ValueDoor
from collectives.virtual.gpu.values import SMALL, SMALL_FLOATS, is_virtual
from collectives.virtual.group_calls.calls import GroupCalls
from collectives.virtual.group_calls.exchange import Contribution, Exchanges, describe_absent, wait_for
from collectives.virtual.group_calls.family import CallFacts, Ordinal
from collectives.virtual.library_calls import CallsOfGroup
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import Gpu
from collectives.virtual.streams.stream_api import DeviceEvent
from sim.units import format_size

_DOOR = ValueDoor()


@dataclass(frozen=True)
class Group:
    """The group between whose members calls are made, as one of them sees it.

    Attributes:
        hosts: its ranks, by number in the run.
        ordinal: tells groups and communicators of the same hosts apart; equal on all ranks.
        rank: this one, within the group.
        name: of the group, in words, the same for groups that were made together.
        host_waits: to wait for a call makes the host wait.
        device_type: of the tensors.
        before_call: called before every call with its number of elements.
        limit_ps: how long the first rank that comes to a call waits for the others.
        launches: whether steps of its programs are launched one by one; else a kernel carries out all.
        launch_ps: of a kernel that carries out all steps of MSCCL XML.
        messages_limited: messages are, too: over NCCL, as Gloo counts from when a rank waits for one.
    """

    hosts: tuple[int, ...]
    ordinal: Ordinal
    rank: int
    name: str
    host_waits: bool = False
    device_type: str = "cpu"
    before_call: Callable[[int], None] = lambda count: None
    limit_ps: int | None = None
    launches: bool = False
    launch_ps: int = 0
    messages_limited: bool = True


@calls_hidden_from_modes
class StreamLauncher:
    """A `collectives.communicators.communicator.Launcher` of calls on streams."""

    moves_by_itself = True

    def __init__(
        self,
        gpu: Gpu,
        group: Group,
        selector: Selector,
        calls: GroupCalls,
        exchanges: Exchanges,
        library: CallsOfGroup | None = None,
    ) -> None:
        self.rank = group.rank
        self.world_size = len(group.hosts)
        self.clock = gpu
        self.group = group
        self.selector = selector
        self._gpu = gpu
        self._calls = calls
        self._exchanges = exchanges
        self._library = library
        self._meeting_point = calls.meeting_point(group.hosts, group.ordinal)
        self._recent = RecentCalls()

    def launch(self, request: Request) -> Work:
        """Issue *request* on the communication stream of its lane."""
        self._gpu.rank_thread.check_thread()
        self.group.before_call(request.count)
        request, pairs = _at_door(request, self.rank)
        graph = self._gpu.graph
        return self.issue(request, pairs) if graph is None else graph.call(self, request, pairs)

    def issue(self, request: Request, pairs: Sequence[Pair] = ()) -> StreamWork:
        """Issue *request*, whose tensors have values, or none; *pairs* are to be told of the result."""
        group, algorithm = self.group, algorithm_of(request, self.selector)
        if request.lane is not None:
            host = group.hosts[self.rank]
            self._exchanges.classes.check_message(group.hosts, group.ordinal[0], host)
        if request.root is not None:
            self._exchanges.classes.check_root(group.hosts, group.ordinal[0], request.root)
        call = request.call(str(algorithm))
        self._recent.append(call)
        self._meeting_point.reports[self.rank] = Report(call, "posted", tuple(self._recent))

        limit_ps = group.limit_ps if call.lane is None or group.messages_limited else None
        facts = replace(self._facts(request, call, algorithm), limit_ps=limit_ps)
        timed = self._calls.call(group.hosts, group.ordinal, facts)
        if self._exchanges.classes.folded and may_be_objects(request):
            timed.objects = self._objects(request, call)
        waits_for_data = _may_have_values(request)
        contribution = self._exchanges.join(
            group.hosts, group.ordinal, self.rank, request, call, self.selector
        )
        lane = group.hosts, group.ordinal, call.lane
        on_host = group.device_type == "cpu" and self._gpu.in_use
        nbytes = _given_bytes(request)
        label, track = f"{call.collective} {format_size(nbytes)}", ""
        if call.lane is not None:
            label, track = str(call), "messages {} > {}".format(*call.lane)
        end = self._gpu.call(
            lane,
            timed,
            call.collective,
            group.name,
            label=label,
            track=track,
            after_stream=not on_host,
            wire_ps=self._calls.wire_ps(group.hosts, call, nbytes),
            is_message=call.lane is not None,
        )
        return StreamWork(self, self._gpu, call, end, contribution, waits_for_data, on_host, pairs)

    def _objects(self, request: Request, call: Call) -> int | None:
        """Return what stands for the objects that this rank gives, and that tell it apart from others.

        A root that is the only one of its kind speaks for itself.
        """
        hosts, ordinal, classes = self.group.hosts, self.group.ordinal[0], self._exchanges.classes
        if request.root is not None and is_of_root(request):
            if classes.is_alone(hosts, ordinal):
                return None
            classes.check_roots(hosts, ordinal, hosts[self.rank], request.root)
        objects = objects_given(request, self.rank)
        if objects is not None:
            self._note_objects(call)
        return objects

    def _note_objects(self, call: Call) -> None:
        """Say so if this rank gives objects for others, with which it is compared no more."""
        host = self.group.hosts[self.rank]
        if self._exchanges.classes.uncompared(host, len(self._gpu.score)) is not None:
            notices = Notices.of(self._gpu.rank_thread.cluster)
            notices.add(NOT_COMPARED, current_place() or call.collective)

    def poll(self) -> None:
        """Do nothing: what is on a stream goes on by itself."""

    def _facts(self, request: Request, call: Call, algorithm: Algorithm) -> CallFacts:
        itemsize, launches = request.dtype.itemsize, self.group.launches
        if request.splits is not None:
            into, out_of = request.splits
            classes, group = self._exchanges.classes, self.group
            if classes.folded:
                classes.has_splits = True
                sizes = Shares(tuple((size,) for size in out_of))
                classes.note_division(sizes, classes.partitions.of(group.hosts, group.ordinal[0]))
                classes.check_parts(group.hosts[self.rank])
            chunking = Chunking(request.count, 1, itemsize)
            splits = tuple(into), tuple(out_of)
            return CallFacts(call, algorithm, chunking, splits, launches=launches)
        if request.lane is not None:
            return CallFacts(call, algorithm, Chunking(request.count, 1, itemsize))
        if self._library is not None:
            own = self._library.on_links(algorithm, request.count, itemsize)
            if own is not None:
                return CallFacts(call, algorithm, own.chunking, delay_ps=own.delay_ps)
        chunking = Chunking.of(algorithm, self.world_size, request.count, itemsize)
        if is_one_kernel(algorithm):
            return CallFacts(call, algorithm, chunking, delay_ps=self.group.launch_ps)
        return CallFacts(call, algorithm, chunking, launches=launches)

    def wait_for_data(self, call: Call, contribution: Contribution) -> None:
        """Return when the data of *call* are there."""
        group, waiting = self.group, self._meeting_point.waiting
        describe = partial(describe_absent, self._exchanges, group.hosts, group.ordinal, call)
        waiting[self.rank] = call
        wait_for(contribution, self._gpu.rank_thread, describe)
        if waiting.get(self.rank) is call:  # another thread of the rank may wait here since
            del waiting[self.rank]


@dataclass(eq=False)
class StreamWork:
    """A call on a communication stream; a `collectives.execution.work.Work`."""

    _launcher: StreamLauncher
    _gpu: Gpu
    _call: Call
    _end: DeviceEvent
    _contribution: Contribution
    _waits_for_data: bool
    _on_host: bool
    _at_door: Sequence[Pair]

    @property
    def is_known(self) -> bool:
        """Whether the result has values, once it is there."""
        return self._contribution.is_there and self._contribution.is_known

    def wait(self, timeout: float | None = None) -> None:
        """Let what comes on the current stream begin after this call; the result has its values.

        Raises:
            CollectiveError: the ranks of the call do not fit each other.
        """
        self.wait_for_data()
        if self._gpu.graph is not None:
            self._gpu.graph.waited(self)
        for tensor, plain in self._at_door:
            _DOOR.done(tensor, plain, self.is_known)
        if not self._on_host:
            self._gpu.current.wait_event(self._end)
        if self._on_host or self._launcher.group.host_waits or self._call.collective == "barrier":
            self._gpu.host_wait(self._end, self._call.collective)

    def wait_for_data(self) -> None:
        """Return when the data are there, which takes no virtual time."""
        if self._waits_for_data:
            self._launcher.wait_for_data(self._call, self._contribution)

    def is_completed(self) -> bool:
        """Return whether this call is through at the host's time."""
        return self._end.query()

    @property
    def completed_ps(self) -> int | None:
        """When this call was through; None as long as that is not known."""
        return None if self._end.number is None else self._gpu.known_time_of(self._end.number)


def _at_door(request: Request, rank: int) -> tuple[Request, Sequence[Pair]]:
    """Return *request* with what stands for virtual tensors, and which results have to be told of."""
    given, output = request.given, request.output
    if not any(tensor is not None and is_virtual(tensor) for tensor in (given, output)):
        return request, ()

    plain_given = None if given is None else _DOOR.given(given)
    if output is None:
        return replace(request, given=plain_given), ()
    in_place = given is None and request.lane is None and request.root in (None, rank)
    plain = _DOOR.given(output) if in_place else _DOOR.wanted(output)
    return replace(request, given=plain_given, output=plain), [(output, plain)]


def _given_bytes(request: Request) -> int:
    """Return the bytes of the whole buffer; of one in parts of any size, those that this rank gives."""
    if request.splits is None:
        return request.nbytes
    _, out_of = request.splits
    return sum(out_of) * request.dtype.itemsize


def _may_have_values(request: Request) -> bool:
    """Return whether the result of *request* may have values, so that its thread waits for them."""
    if request.collective == "barrier":
        return True
    tensors = [tensor for tensor in (request.given, request.output) if tensor is not None]
    if any(not tensor.is_meta for tensor in tensors):
        return True
    return request.count <= (SMALL_FLOATS if request.dtype.is_floating_point else SMALL)
