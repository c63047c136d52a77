"""MSCCL's execution model, as naive as possible, on numbers: independent of our importer.

Thread blocks run in order; a connection, of a sender, a receiver and a channel, is a FIFO; a step waits
for the flag of the step that it depends on.  Under ``slots=0`` a send waits until its receive begins.
"""

import random
import re
from collections import defaultdict, deque
from typing import Any
from xml.etree import ElementTree

from collectives import Algorithm, NotSupportedError, verify
from tests.collectives.reference import Setting, added

SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrs", "rrc", "rrcs")
NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip


class StuckError(Exception):
    """No thread block can go on."""


class Machine:
    """All GPUs of a file; *slots* is how many messages a connection holds."""

    def __init__(self, text: str, slots: int, seed: int = 0) -> None:
        algo = ElementTree.fromstring(text)
        self.slots = slots
        self.random = random.Random(seed)
        self.in_place = algo.get("inplace") == "1"
        sizes = self._number(algo, "ngpus"), self._number(algo, "nchunksperloop")
        self.setting = Setting(NAMES[algo.attrib["coll"]], *sizes)
        self.buffers = []
        self.blocks = []
        self.done = {}
        self.fifo = defaultdict(deque)
        for gpu, given in zip(algo, self.setting.given(), strict=True):
            rank = self._number(gpu, "id")
            self.buffers.append(self._buffers(gpu, given))
            for block in gpu:
                self.blocks.append((rank, block))
                self.done[rank, self._number(block, "id")] = 0

    @staticmethod
    def _number(element: ElementTree.Element, name: str) -> int:
        return int(element.attrib[name])

    def _buffers(self, gpu: ElementTree.Element, given: list[int | None]) -> dict[str, list[int | None]]:
        scratch = [None] * self._number(gpu, "s_chunks")
        if self.in_place:
            return {"i": given, "o": given, "s": scratch}
        return {"i": given, "o": [None] * self._number(gpu, "o_chunks"), "s": scratch}

    def run(self) -> list[list[int | None]]:
        """Run to the end; return the outputs."""
        moved = True
        while moved:
            moved = False
            order = list(self.blocks)
            self.random.shuffle(order)
            for rank, block in order:
                moved |= self._try(rank, block)
        if any(self.done[rank, self._number(block, "id")] < len(block) for rank, block in self.blocks):
            raise StuckError
        assert not any(self.fifo.values())
        return [buffers["o"] for buffers in self.buffers]

    def _next(self, rank: int, block: ElementTree.Element) -> ElementTree.Element | None:
        done = self.done[rank, self._number(block, "id")]
        return block[done] if done < len(block) else None

    def _may_start(self, rank: int, step: ElementTree.Element) -> bool:
        other, number = self._number(step, "depid"), self._number(step, "deps")
        if other < 0:
            return True
        target = next(block for owner, block in self.blocks if (owner, block.get("id")) == (rank, str(other)))
        assert target[number].get("hasdep") == "1"
        return self.done[rank, other] > number

    def _try(self, rank: int, block: ElementTree.Element) -> bool:
        step = self._next(rank, block)
        if step is None or not self._may_start(rank, step):
            return False
        kind, count = step.attrib["type"], self._number(step, "cnt")
        send, recv, channel = (self._number(block, name) for name in ("send", "recv", "chan"))
        held = self.buffers[rank]
        source, first = held[step.attrib["srcbuf"]], self._number(step, "srcoff")
        target, start = held[step.attrib["dstbuf"]], self._number(step, "dstoff")
        outgoing = self.fifo[rank, send, channel]
        if kind in SENDS and not self._has_room(rank, send, channel, outgoing):
            return False
        incoming = []
        if kind in RECEIVES:
            if not self.fifo[recv, rank, channel]:
                return False
            incoming = self.fifo[recv, rank, channel].popleft()
            assert len(incoming) == count
        values = source[first : first + count]
        reduced = list(map(added, values, incoming))
        if kind in ("r", "rcs"):
            target[start : start + count] = incoming
        elif kind in ("rrc", "rrcs"):
            target[start : start + count] = reduced
        elif kind == "cpy":
            target[start : start + count] = values
        elif kind == "re":
            target[start : start + count] = map(added, target[start : start + count], values)
        if kind in SENDS:
            outgoing.append({"s": values, "rcs": incoming}.get(kind, reduced))
        self.done[rank, self._number(block, "id")] += 1
        return True

    def _has_room(self, rank: int, peer: int, channel: int, queue: deque[Any]) -> bool:
        """Return whether a message may leave: into a slot, or into a receive that could start now."""
        if len(queue) < self.slots:
            return True
        if queue:
            return False
        for owner, block in self.blocks:
            ends = owner, self._number(block, "recv"), self._number(block, "chan")
            if ends == (peer, rank, channel):
                step = self._next(peer, block)
                receives = step is not None and step.attrib["type"] in RECEIVES
                return step is not None and receives and self._may_start(peer, step)
        return False


def fulfils(text: str, *, slots: int, seed: int = 0) -> bool:
    """Run the file; return whether the collective is fulfilled."""
    machine = Machine(text, slots, seed)
    return machine.setting.is_fulfilled(machine.run())


def why_not(algorithm: Algorithm, world_size: int) -> str | None:
    """Return, as a pattern, why these formats cannot take *algorithm*; None where they must."""
    if algorithm.collective in ("broadcast", "reduce", "gather", "scatter"):
        return f"no place for the root of a {algorithm.collective}"
    try:
        verify(algorithm, world_size)
    except NotSupportedError as refusal:
        return re.escape(str(refusal))
    return None
