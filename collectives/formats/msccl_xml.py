"""A program as MSCCL XML, the format of Microsoft's msccl-tools that MSCCL and RCCL run.

Each rank gets a thread block for its local moves, one for each rank that it sends to and one for
each that it receives from; where a step has several messages between the same ranks, one for each of
these connections.  A thread block is carried out in order; what has to wait for another thread block
of the rank names it (``depid``, ``deps``), by ``nop`` steps where it waits for several.

Deadlock: every dependency points back in an order in which messages complete under rendezvous (see
`collectives.formats.lowering`), so nothing is assumed of the room in a connection.

Sources: ``msccl/language/ir.py`` of msccl-tools for the attributes, ``src/include/msccl.h``,
``src/graph/topo.cc`` and ``src/collectives/device/msccl_interpreter.h`` of microsoft/msccl for the limits
and for what the runtime does with a step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from collectives.errors import NotSupportedError
from collectives.formats.lowering import MAX_CONNECTIONS, BufferPlace, BufferSpan, Lowered, LoweredStep, lower
from collectives.program import Algorithm

PROTOCOLS = ("Simple", "LL", "LL128")

MAX_STEPS = 256
MAX_COUNT = 71
MAX_CHANNELS = 32
MAX_THREAD_BLOCKS = 216
MAX_NAME = 63
DISTANCES_PER_CHANNEL = 15
"""Up to 15 thread blocks that send, 15 that receive and a local one: at most 32 may share a channel."""

LOCAL = (-1, -1, 0)
Channels: TypeAlias = dict[tuple[int, int, int], int]

MAX_BYTES = 1 << 40


def to_msccl_xml(algorithm: Algorithm, world_size: int, *, protocol: str = "Simple") -> str:
    """Return *algorithm* for *world_size* ranks as MSCCL XML.

    Args:
        algorithm: what to export; it is proved first.
        world_size: number of ranks; a file is for one only.
        protocol: ``Simple``, ``LL`` or ``LL128``; the schedule is the same.

    Raises:
        NotSupportedError: the format or the runtime cannot hold it; the message says why.
        ProgramError: the program is wrong.
        ValueError: there is no such protocol.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    lowered = lower(algorithm, world_size, "MSCCL XML", max_count=MAX_COUNT)
    channels = _channels(lowered)
    gpus = [_Gpu(rank, steps, channels).finished() for rank, steps in enumerate(lowered.ranks)]
    num_channels = max(channels.values(), default=0) + 1
    _check_limits(lowered, gpus, num_channels)
    return "\n".join(_lines(lowered, gpus, num_channels, protocol)) + "\n"


@dataclass(slots=True, eq=False)
class _Step:
    """A step of a thread block; *waits_for* are steps of other thread blocks of this rank."""

    type: str
    source: BufferSpan | None
    target: BufferSpan | None
    block: _ThreadBlock
    waits_for: list[_Step] = field(default_factory=list)
    number: int = -1
    is_awaited: bool = False


@dataclass(slots=True, eq=False)
class _ThreadBlock:
    send: int
    recv: int
    channel: int
    number: int = -1
    steps: list[_Step] = field(default_factory=list)


class _Gpu:
    """The thread blocks of one rank."""

    def __init__(self, rank: int, steps: Iterable[LoweredStep], channels: Channels) -> None:
        self.rank = rank
        self.channels = channels
        self.blocks: dict[tuple[int, int, int], _ThreadBlock] = {}
        self.writer: dict[BufferPlace, _Step] = {}
        self.readers: defaultdict[BufferPlace, list[_Step]] = defaultdict(list)
        for step in steps:
            self.add(step)

    def add(self, step: LoweredStep) -> None:
        """Add a step of the program: its moves, what it sends, what it receives."""
        for move in step.moves:
            if not move.reduces:
                self.append(LOCAL, "cpy", move.source, move.target, reads=[move.source], writes=move.target)
                continue
            # One chunk at a time: the runtime does not advance within a reduction that it must divide.
            for offset in range(move.source.length):
                source, target = move.source.part(offset, 1), move.target.part(offset, 1)
                self.append(LOCAL, "re", source, target, reads=[source, target], writes=target)
        for message in step.sends:
            peers = message.receiver, -1, message.connection
            self.append(peers, "s", message.source, message.target, reads=[message.source])
        for message in step.receives:
            reads = [message.target] if message.reduces else []
            kind = "rrc" if message.reduces else "r"
            source = message.target if message.reduces else message.source
            peers = -1, message.sender, message.connection
            self.append(peers, kind, source, message.target, reads=reads, writes=message.target)

    def append(
        self,
        peers: tuple[int, int, int],
        kind: str,
        source: BufferSpan,
        target: BufferSpan,
        *,
        reads: list[BufferSpan],
        writes: BufferSpan | None = None,
    ) -> None:
        """Append a step to the thread block for *peers*, behind what it must not overtake."""
        if peers not in self.blocks:
            send, recv, connection = peers
            ends = (self.rank, send, connection) if send >= 0 else (recv, self.rank, connection)
            self.blocks[peers] = _ThreadBlock(send, recv, self.channels.get(ends, 0))
        step = _Step(kind, source, target, self.blocks[peers])
        waits_for: set[_Step] = set()
        for place in (place for span in reads for place in span.places()):
            if place in self.writer:
                waits_for.add(self.writer[place])
            self.readers[place].append(step)
        for place in writes.places() if writes else ():
            if place in self.writer:
                waits_for.add(self.writer[place])
            waits_for.update(self.readers.pop(place, []))
            self.writer[place] = step
        waits_for.discard(step)
        step.waits_for = list(waits_for)
        step.block.steps.append(step)

    def finished(self) -> list[_ThreadBlock]:
        """Return the thread blocks in order, numbered, with a step for each thing to wait for."""
        blocks = sorted(self.blocks.values(), key=lambda block: (block.send, block.recv, block.channel))
        for number, block in enumerate(blocks):
            block.number = number
            for position, step in enumerate(block.steps):
                step.number = position
        for block in blocks:
            self.keep_latest(block)
        for block in blocks:
            block.steps = [each for step in block.steps for each in _one_by_one(step)]
        for block in blocks:
            for position, step in enumerate(block.steps):
                step.number = position
            _keep_reductions_apart(block)
        return blocks

    def keep_latest(self, block: _ThreadBlock) -> None:
        """Drop from *block* what is waited for already, by order or by an earlier step."""
        reached: dict[int, int] = {}
        for step in block.steps:
            latest: dict[int, _Step] = {}
            for other in step.waits_for:
                number = other.block.number
                known = max(reached.get(number, -1), latest[number].number if number in latest else -1)
                if other.block is not block and other.number > known:
                    latest[number] = other
            step.waits_for = [latest[number] for number in sorted(latest)]
            for other in step.waits_for:
                other.is_awaited = True
                reached[other.block.number] = other.number


def _one_by_one(step: _Step) -> Iterator[_Step]:
    """Yield *step* after a ``nop`` for each but the last of what it waits for."""
    for other in step.waits_for[:-1]:
        yield _Step("nop", None, None, step.block, [other])
    step.waits_for = step.waits_for[-1:]
    yield step


def _keep_reductions_apart(block: _ThreadBlock) -> None:
    """Keep the runtime from fusing a reduction with a step that only writes to the same place.

    It fuses what follows a ``re`` that nobody waits for, if it has the same target and waits for nothing,
    and takes the buffer of the last one as the source of all.
    """
    for step, following in pairwise(block.steps):
        if step.type == "re" and step.target == following.target:
            same = following.type == "re" and _buffer(following) == _buffer(step)
            step.is_awaited = step.is_awaited or not same


def _buffer(step: _Step) -> str | None:
    return step.source.buffer if step.source else None


def _channels(lowered: Lowered) -> Channels:
    """Return the channel of each connection, by its number and by the distance between its ranks."""
    world_size = len(lowered.ranks)
    ends = {
        (message.sender, message.receiver, message.connection)
        for steps in lowered.ranks
        for step in steps
        for message in step.sends
    }
    channel: dict[tuple[int, int], int] = {}
    num_channels = 0

    for connection in range(MAX_CONNECTIONS):
        distances = sorted(
            {(receiver - sender) % world_size for sender, receiver, own in ends if own == connection}
        )
        channel |= {
            (distance, connection): num_channels + number // DISTANCES_PER_CHANNEL
            for number, distance in enumerate(distances)
        }
        num_channels += -(-len(distances) // DISTANCES_PER_CHANNEL)

    return {
        (sender, receiver, connection): channel[(receiver - sender) % world_size, connection]
        for sender, receiver, connection in ends
    }


def _check_limits(lowered: Lowered, gpus: list[list[_ThreadBlock]], num_channels: int) -> None:
    longest, rank = max(
        ((len(block.steps), rank) for rank, blocks in enumerate(gpus) for block in blocks), default=(0, 0)
    )
    most = max(map(len, gpus))
    for what, number, limit in (
        (f"steps in a thread block of rank {rank}", longest, MAX_STEPS),
        ("thread blocks on a rank", most, MAX_THREAD_BLOCKS),
        ("channels", num_channels, MAX_CHANNELS),
    ):
        if number > limit:
            raise NotSupportedError(
                f"{lowered.algorithm}, {len(lowered.ranks)} ranks: MSCCL runs at most {limit} {what}, this "
                f"takes {number}; use fewer ranks, or an algorithm with fewer messages per rank"
            )


def _lines(
    lowered: Lowered, gpus: list[list[_ThreadBlock]], num_channels: int, protocol: str
) -> Iterator[str]:
    # The runtimes' parsers know no entities, and hold so many characters.
    name = re.sub(r"[^\w:=,.() -]", "_", lowered.algorithm, flags=re.ASCII)[:MAX_NAME]
    yield (
        f'<algo name="{name}" proto="{protocol}" '
        f'nchannels="{num_channels}" nchunksperloop="{lowered.num_chunks}" ngpus="{len(gpus)}" '
        f'coll="{lowered.collective}" inplace="{int(lowered.in_place)}" '
        f'outofplace="{int(not lowered.in_place)}" minBytes="0" maxBytes="{MAX_BYTES}">'
    )
    chunks = (
        f'i_chunks="{lowered.input_chunks}" o_chunks="{lowered.output_chunks}" '
        f's_chunks="{lowered.scratch_chunks}"'
    )

    for rank, blocks in enumerate(gpus):
        yield f'  <gpu id="{rank}" {chunks}>'
        for block in blocks:
            yield (
                f'    <tb id="{block.number}" send="{block.send}" recv="{block.recv}" chan="{block.channel}">'
            )
            yield from map(_spell, block.steps)
            yield "    </tb>"
        yield "  </gpu>"

    yield "</algo>"


def _spell(step: _Step) -> str:
    source, target = step.source or BufferSpan("i", -1, 0), step.target or BufferSpan("o", -1, 0)
    awaited = step.waits_for[0] if step.waits_for else None
    block, number = (awaited.block.number, awaited.number) if awaited else (-1, -1)
    return (
        f'      <step s="{step.number}" type="{step.type}" srcbuf="{source.buffer}" srcoff="{source.start}" '
        f'dstbuf="{target.buffer}" dstoff="{target.start}" cnt="{target.length}" depid="{block}" '
        f'deps="{number}" hasdep="{int(step.is_awaited)}"/>'
    )
