"""Races on a GPU: two operations on one storage, one of which writes, and nothing orders them.

Each rank's operations, collectives and copies are followed with the stream on which they run and the line of
the user's code that issues them, and compared by happens-before, not by the times of the run
(`collectives.virtual.streams.happens_before`).  Memory that another stream still uses when it is freed and
given out again is such a race, too, unless ``record_stream`` was called; what a collective uses, its work
keeps.

Tensors of CUDA devices are followed, and pinned memory of the host while a copy that the host does not await
is under way.  What DistributedDataParallel writes into a model that it wraps is taken to be there when it
has: Lightning wraps on a stream of its own, for which nobody waits.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.diagnosis.accesses import (
    Access,
    Place,
    Region,
    described,
    overlap,
    place_here,
    region_of,
    spell_place,
)
from collectives.virtual.diagnosis.watched_calls import CallListeners, WatchedCall, calls_watched
from collectives.virtual.isolation.patching import observed, replaced
from collectives.virtual.memory.held_storage import HeldStorage
from collectives.virtual.memory.tracker import Memory
from collectives.virtual.notices import Findings
from collectives.virtual.streams.gpu import Gpu, current_gpu
from collectives.virtual.streams.happens_before import HOST, Clock, HappensBefore
from sim.cluster import RankThread

_READ_ON_HOST = {"tolist": "tolist", "numpy": "numpy", "__dlpack__": "dlpack", "__reduce_ex__": "pickle"}
"""Methods of tensors that look at memory without an operation of torch, and what they are known as."""
_SLOT = "_uses"
_SEVERAL = -2
"""In place of a stream: a storage was used on more than one."""
_MANY = 64
"""Pieces of freed memory before it is asked which of them are still in use."""


class _Uses:
    """What was done to one storage that a later operation may race with."""

    __slots__ = ("accesses", "freed", "held", "rank", "region", "stream")

    def __init__(self, rank: RankAccesses, held: HeldStorage | None, stream: int) -> None:
        self.accesses: dict[tuple[int, bool, Region], Access] = {}
        self.freed: list[Access] = []
        self.rank = rank
        self.held = held
        block = None if held is None else held.block
        self.region: tuple[int, int, int] | None = None
        if block is not None:
            assert isinstance(block.pool.stream, int)
            self.region = block.pool.stream, block.address, block.size
        self.stream = stream

    def __del__(self) -> None:
        if self.region is not None and self.held is not None and not self.held.is_shared:
            owner, address, size = self.region
            pending = [own for own in self.accesses.values() if own.stream != owner and not own.is_call]
            if pending:
                self.rank.freed[owner].append((address, size, pending))


class Races:
    """Finds the races of the ranks of one run."""

    def __init__(self) -> None:
        self._found = Findings()
        self._of_rank: dict[int, RankAccesses] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """What was found, one a race, with the ranks that it is on."""
        return tuple(self._found.texts())

    @property
    def text(self) -> str:
        """What was found, in lines."""
        if self.texts:
            return "\n".join(self.texts)
        return "No races: waits order all that ranks do on the streams of their GPUs"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {"found": list(self.texts), "holds": not self.texts}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the ranks of a run while the body runs; what was found before is forgotten."""
        self._found.clear()
        self._of_rank.clear()
        reads = [
            (
                Tensor,
                name,
                observed(getattr(Tensor, name), before=partial(self._read_on_host, known_as)),
            )
            for name, known_as in _READ_ON_HOST.items()
        ]
        wrap = observed(DistributedDataParallel.__init__, after=self._wrapped)
        wraps = DistributedDataParallel, "__init__", wrap
        listeners = CallListeners(begins=[self._begins], began=[self._began])
        with replaced([*reads, wraps]), calls_watched(listeners):
            yield

    def on(self, gpu: Gpu, memory: Memory) -> RankAccesses:
        """Return what follows the accesses of the rank of *gpu*, whose memory is *memory*."""
        rank = self._of_rank[gpu.rank_thread.rank] = RankAccesses(self, gpu, memory)
        return rank

    def note(self, rank: int, place: str, what: str) -> None:
        """Note a race."""
        self._found.add(rank, place, what)

    def _begins(self, rank_thread: RankThread, group: object, operation: str) -> None:
        own = self._of_rank.get(rank_thread.rank)
        if own is not None:
            own.order.calls.clear()

    def _began(self, call: WatchedCall) -> None:
        own = self._of_rank.get(call.rank_thread.rank)
        if own is not None and own.order.calls:
            own.call(call.operation, call.given, call.wanted)

    def _wrapped(self, rank_thread: RankThread, _: None, *args: Any, **kwargs: Any) -> None:
        gpu = current_gpu()
        if gpu is not None and rank_thread.rank in self._of_rank:
            self._of_rank[rank_thread.rank].order.settle(gpu.current.number)

    def _read_on_host(
        self, name: str, rank_thread: RankThread, tensor: Tensor, *args: Any, **kwargs: Any
    ) -> None:
        own = self._of_rank.get(rank_thread.rank)
        if own is not None and own.has_pinned and type(tensor) is not FakeTensor:
            own.on_host(name, [(tensor, False)])


class RankAccesses:
    """Accesses to storages by one rank.

    Attributes:
        order: of what the rank issues.
        has_pinned: memory of the host has been followed.
        freed: memory of each stream that was given back while another stream was using it: address, size, by
            what.
    """

    def __init__(self, races: Races, gpu: Gpu, memory: Memory) -> None:
        self.order = HappensBefore(gpu.live_events)
        self.has_pinned = False
        self.freed: defaultdict[int, list[tuple[int, int, list[Access]]]] = defaultdict(list)
        self._races, self._gpu, self._memory = races, gpu, memory
        gpu.listeners.append(self.order.note)

    def born(self, tensor: Tensor, operation: object) -> None:
        """Follow the storage of a new *tensor* of the device."""
        storage = tensor.untyped_storage()
        if not hasattr(storage, _SLOT):
            self._follow(storage)

    def on_stream(self, operation: str, tensors: Sequence[tuple[Tensor, bool]]) -> tuple[int, int, Place]:
        """Note an operation on the current stream, with what it reads, and writes (True).

        Returns:
            Stream, epoch and place, as `made` wants them.
        """
        stream = self._gpu.current.number
        clock, place = self.order.clock(stream), place_here()
        epoch = clock[stream]
        for tensor, writes in tensors:
            self._note(tensor, writes, stream, epoch, clock, operation, place, False)
        return stream, epoch, place

    def made(self, operation: str, tensors: Sequence[Tensor], by: tuple[int, int, Place]) -> None:
        """Note that an operation has written *tensors* that are new."""
        stream, epoch, place = by
        for tensor in tensors:
            uses = getattr(tensor.untyped_storage(), _SLOT, None)
            if uses is None or not uses.accesses:
                clock = self.order.clock(stream)
                self._note(tensor, True, stream, epoch, clock, operation, place, False)

    def on_host(self, operation: str, tensors: Sequence[tuple[Tensor, bool]]) -> None:
        """Note an operation of the host on what is in its memory."""
        for tensor, writes in tensors:
            if hasattr(tensor.untyped_storage(), _SLOT):
                self._note(tensor, writes, HOST, 0, self.order.host, operation, place_here(), False)

    def call(self, operation: str, given: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Note the call that the rank has issued last, with the tensors that it reads and writes."""
        stream, clock = self.order.calls[-1]
        self.order.calls.clear()
        place = place_here()
        for tensors, writes in ((given, False), (wanted, True)):
            for tensor in tensors:
                if isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda":
                    self._note(tensor, writes, stream, clock[stream], clock, operation, place, True)
                elif self.has_pinned:
                    self.on_host(operation, [(tensor, writes)])

    def _note(
        self,
        tensor: Tensor,
        writes: bool,
        stream: int,
        epoch: int,
        clock: Clock,
        operation: str,
        place: Place,
        is_call: bool,
    ) -> None:
        storage = tensor.untyped_storage()
        nbytes = storage.nbytes()
        if not nbytes or not tensor.numel():
            return
        uses: _Uses | None = getattr(storage, _SLOT, None)
        if uses is None or (uses.held is not None and uses.held.block is None):
            uses = self._follow(storage)
        size = tensor.element_size()
        is_whole = tensor.numel() * size == nbytes
        region = Region(0, nbytes) if is_whole else region_of(tensor, int(tensor.storage_offset()) * size)
        access = Access(stream, epoch, operation, place, writes, is_call, region)
        if uses.freed:
            self._compare(access, uses.freed, clock, tensor, True)
            uses.freed = []
        if uses.stream != stream:
            if uses.accesses:
                uses.stream = _SEVERAL
                self._compare(access, uses.accesses.values(), clock, tensor, False)
            else:
                uses.stream = stream
        if writes and region == Region(0, nbytes):
            uses.accesses.clear()
            uses.stream = stream
        if stream != HOST:
            uses.accesses[stream, writes, region] = access

    def _compare(self, access: Access, others: Any, clock: Clock, tensor: Tensor, are_freed: bool) -> None:
        for other in others:
            if (
                other.epoch > clock.get(other.stream, 0)
                and other.stream != access.stream
                and (other.writes or access.writes)
                and (are_freed or overlap(access.region, other.region))
            ):
                what = self._of_freed(access, other) if are_freed else self._of_race(access, other, tensor)
                self._races.note(self._gpu.rank_thread.rank, spell_place(access.place), what)
                return

    def _follow(self, storage: Any) -> _Uses:
        held = self._memory.held(storage)
        uses = _Uses(self, held, self._gpu.current.number)
        setattr(storage, _SLOT, uses)
        if uses.region is not None and self.freed.get(uses.region[0]):
            self._give_out(uses)
        return uses

    def _give_out(self, uses: _Uses) -> None:
        """Let what still used the memory of *uses* when it was freed be compared with what comes."""
        assert uses.region is not None
        stream, address, size = uses.region
        freed = self.freed[stream]
        clock = self.order.clock(stream)
        if len(freed) > _MANY:
            freed[:] = [own for own in freed if _still_pending(own[2], clock)]
        for entry in [own for own in freed if own[0] < address + size and address < own[0] + own[1]]:
            freed.remove(entry)
            uses.freed += _still_pending(entry[2], clock)

    def _of_race(self, access: Access, other: Access, tensor: Tensor) -> str:
        """Return in words that nothing orders *access* after *other*."""
        does = "changes" if access.writes else "reads"
        text = f"{access.operation} {does} {described(tensor)} on {self._spell_stream(access.stream)}"
        done = "writes" if other.writes else "reads"
        text += f", which {other.operation} of {spell_place(other.place)} {done} on "
        text += f"{self._spell_stream(other.stream)}, and nothing orders the two; "
        if other.is_call:
            if access.stream == HOST:
                return text + "call wait() of what it returns, and let the host wait for the stream"
            return text + "wait for it first: wait() of what it returns, on the stream that goes on"
        if access.stream == HOST:
            return text + "let the host wait first: synchronize() of an event or of the stream"
        if access.is_call:
            return text + "let the stream that issues the call wait first: wait_stream() or wait_event()"
        return text + "let the stream wait first: wait_stream() or wait_event()"

    def _of_freed(self, access: Access, other: Access) -> str:
        """Return in words that the memory of *access* was freed while *other* used it."""
        does = "changes" if access.writes else "reads"
        done = "writes" if other.writes else "reads"
        return (
            f"{access.operation} {does} memory on {self._spell_stream(access.stream)} that was freed while "
            f"{other.operation} of {spell_place(other.place)} {done} it on "
            f"{self._spell_stream(other.stream)}; call "
            "record_stream() of the freed tensor with that stream, or let the stream that it is of wait"
        )

    def _spell_stream(self, stream: int) -> str:
        return "the host" if stream == HOST else self._gpu.stream_name(stream)


def _still_pending(accesses: list[Access], clock: Clock) -> list[Access]:
    """Return which of *accesses* nothing orders before what comes at *clock*."""
    return [own for own in accesses if own.epoch > clock.get(own.stream, 0)]
