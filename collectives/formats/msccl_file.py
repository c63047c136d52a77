"""Reader of MSCCL XML files: thread blocks, refused where they make no sense by themselves.

Read is what msccl-tools writes by default (elements ``algo``, ``gpu``, ``tb`` and ``step``).  A document
type is refused, so there are no entities to expand, and nothing outside the file is opened.
"""

from __future__ import annotations

import xml.parsers.expat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectives.errors import AlgorithmFileError
from collectives.formats.lowering import COLLECTIVE_NAMES

MAX_FILE_BYTES = 64 << 20
MAX_STEPS = 200_000
MAX_CHUNKS = 1 << 20
MAX_CHUNKS_OF_ALL_RANKS = 1 << 22

COLLECTIVES = {theirs: ours for ours, theirs in COLLECTIVE_NAMES.items()} | {
    "reduce_scatter": "reduce_scatter"
}
"""What the runtimes and msccl-tools call the collectives that a file can be for."""

SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVING = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
READING = frozenset({"s", "rrs", "rrc", "rrcs", "cpy", "re"})
WRITING = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})
TYPES = SENDING | RECEIVING | READING | WRITING | {"nop"}


@dataclass(frozen=True, slots=True)
class MscclTransfer:
    """A step of a thread block, on line *line* of the file.

    It reads *count* chunks of buffer *source* from *source_chunk* on, and writes as many of *target*;
    it waits for step *wait_step* of thread block *wait_block* of the same GPU, if that is not -1.
    """

    line: int
    type: str
    source: str
    source_chunk: int
    target: str
    target_chunk: int
    count: int
    wait_block: int
    wait_step: int
    is_awaited: bool


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Steps that are carried out in order, with at most one peer to send to and one to receive from."""

    line: int
    send: int
    recv: int
    channel: int
    steps: tuple[MscclTransfer, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """The thread blocks of a rank, and how many chunks its input, output and scratch have."""

    line: int
    chunks: Mapping[str, int]
    blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True, slots=True)
class MscclFile:
    """A file: *num_chunks* of the longer of input and output; GPUs by rank."""

    origin: str
    name: str
    protocol: str
    collective: str
    in_place: bool
    num_chunks: int
    gpus: tuple[Gpu, ...]

    def error(self, line: int, text: str) -> AlgorithmFileError:
        """Return the error that says what is wrong on *line*."""
        return AlgorithmFileError(f"{self.origin}, line {line}: {text}")


def read_msccl_file(path: str | Path) -> MscclFile:
    """Read the file at *path*.

    Raises:
        AlgorithmFileError: there is none, it is no MSCCL XML, or it makes no sense; with the line.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise AlgorithmFileError(f"{path}: no such file; expected a file of MSCCL XML")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise AlgorithmFileError(
                f"{path}: {path.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read"
            )
        content = path.read_bytes()
    except OSError as error:
        raise AlgorithmFileError(f"{path}: {error.strerror or error}") from None
    return parse_msccl(content, str(path))


def parse_msccl(content: str | bytes, origin: str = "MSCCL XML") -> MscclFile:
    """Parse *content*, which errors call *origin*.

    Raises:
        AlgorithmFileError: it is no MSCCL XML, or it makes no sense; with the line.
    """
    return _Reader(origin).algo(_elements(content, origin))


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[_Element] = field(default_factory=list)


def _elements(content: str | bytes, origin: str) -> _Element:
    """Return the root element, with the lines on which elements begin."""
    parser = xml.parsers.expat.ParserCreate()
    top = _Element("", {}, 0)
    open_elements = [top]
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > 2 * MAX_STEPS or len(open_elements) > 16:
            what = "elements inside each other" if len(open_elements) > 16 else "elements"
            raise AlgorithmFileError(f"{origin}, line {parser.CurrentLineNumber}: too many {what}")
        element = _Element(tag, attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def doctype(name: str, system: str | None, public: str | None, has_subset: bool) -> None:
        line = parser.CurrentLineNumber
        raise AlgorithmFileError(f"{origin}, line {line}: a document type (DOCTYPE) is refused; remove it")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(content, True)
    except xml.parsers.expat.ExpatError as error:
        reason = xml.parsers.expat.ErrorString(error.code)
        raise AlgorithmFileError(f"{origin}, line {error.lineno}: not XML: {reason}") from None
    except (LookupError, ValueError) as error:  # what expat says of an encoding that it does not know
        raise AlgorithmFileError(f"{origin}, line 1: not XML that can be read: {error}") from None
    return top.children[0]


class _Reader:
    """From elements to a file, checking each value where it is read."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.num_steps = 0

    def algo(self, element: _Element) -> MscclFile:
        if element.tag != "algo":
            raise self.error(element, f"expected the element <algo>, got <{element.tag}>")
        collective = self.text(element, "coll")
        if collective not in COLLECTIVES:
            known = ", ".join(COLLECTIVES)
            raise self.error(element, f"coll is one of {known}; got {collective!r}")
        num_ranks = self.number(element, "ngpus", 1, 1 << 16)
        num_chunks = self.number(element, "nchunksperloop", 1, MAX_CHUNKS)
        if num_chunks * num_ranks > MAX_CHUNKS_OF_ALL_RANKS:
            most = f"at most {MAX_CHUNKS_OF_ALL_RANKS} chunks on all ranks together are read"
            raise self.error(element, f"nchunksperloop is {num_chunks}, ngpus {num_ranks}; {most}")
        gpus: dict[int, Gpu] = {}

        for child in self.children(element, "gpu"):
            rank = self.number(child, "id", 0, num_ranks - 1)
            if rank in gpus:
                raise self.error(child, f"a second <gpu> with id {rank}")
            gpus[rank] = self.gpu(child, rank, num_ranks)

        if len(gpus) != num_ranks:
            missing = next(rank for rank in range(num_ranks) if rank not in gpus)
            raise self.error(element, f"ngpus is {num_ranks}, but there is no <gpu> with id {missing}")

        return MscclFile(
            origin=self.origin,
            name=self.text(element, "name"),
            protocol=element.attributes.get("proto", ""),
            collective=COLLECTIVES[collective],
            in_place=bool(self.number(element, "inplace", 0, 1)),
            num_chunks=num_chunks,
            gpus=tuple(gpus[rank] for rank in range(num_ranks)),
        )

    def gpu(self, element: _Element, rank: int, num_ranks: int) -> Gpu:
        chunks = {buffer: self.number(element, f"{buffer}_chunks", 0, MAX_CHUNKS) for buffer in "ios"}
        blocks: list[ThreadBlock] = []
        connections: set[tuple[str, int, int]] = set()
        numbered = [(self.number(child, "id", 0, MAX_STEPS), child) for child in self.children(element, "tb")]
        for number, child in sorted(numbered, key=lambda pair: pair[0]):
            if number != len(blocks):
                which = f"got {number} where {len(blocks)} is expected"
                raise self.error(child, f"thread blocks are numbered 0, 1, 2 …, each once; {which}")
            block = self.block(child, num_ranks)
            for kind, peer in (("send", block.send), ("recv", block.recv)):
                if peer == rank:
                    raise self.error(child, f"{kind} is {peer}, the GPU itself")
                if peer >= 0 and (kind, peer, block.channel) in connections:
                    what = f"{kind}={peer} and chan={block.channel}"
                    raise self.error(child, f"a second thread block of GPU {rank} with {what}")
                connections.add((kind, peer, block.channel))
            blocks.append(block)
        gpu = Gpu(element.line, chunks, tuple(blocks))
        self.check_waits(gpu)
        return gpu

    def block(self, element: _Element, num_ranks: int) -> ThreadBlock:
        send = self.number(element, "send", -1, num_ranks - 1)
        recv = self.number(element, "recv", -1, num_ranks - 1)
        steps: list[MscclTransfer] = []
        for child in self.children(element, "step"):
            self.num_steps += 1
            if self.num_steps > MAX_STEPS:
                raise self.error(child, f"more than {MAX_STEPS} steps in the file")
            if self.number(child, "s", 0, MAX_STEPS) != len(steps):
                raise self.error(child, f"steps are numbered 0, 1, 2 …; expected s={len(steps)}")
            steps.append(self.step(child))
            for kinds, peer, what in ((SENDING, send, "send"), (RECEIVING, recv, "recv")):
                if steps[-1].type in kinds and peer < 0:
                    raise self.error(child, f"type {steps[-1].type!r} in a thread block with {what}=-1")
        lowest = -1 if send < 0 and recv < 0 else 0
        channel = self.number(element, "chan", lowest, 1 << 16)
        return ThreadBlock(element.line, send, recv, channel, tuple(steps))

    def step(self, element: _Element) -> MscclTransfer:
        kind = self.text(element, "type")
        if kind not in TYPES:
            raise self.error(element, f"type is one of {', '.join(sorted(TYPES))}; got {kind!r}")
        buffers = [self.text(element, name) for name in ("srcbuf", "dstbuf")]
        for name, buffer in zip(("srcbuf", "dstbuf"), buffers, strict=True):
            if buffer not in ("i", "o", "s"):
                raise self.error(element, f"{name} is i, o or s; got {buffer!r}")
        return MscclTransfer(
            line=element.line,
            type=kind,
            source=buffers[0],
            source_chunk=self.number(element, "srcoff", -1, MAX_CHUNKS),
            target=buffers[1],
            target_chunk=self.number(element, "dstoff", -1, MAX_CHUNKS),
            count=self.number(element, "cnt", 0 if kind == "nop" else 1, MAX_CHUNKS),
            wait_block=self.number(element, "depid", -1, MAX_STEPS),
            wait_step=self.number(element, "deps", -1, MAX_STEPS),
            is_awaited=bool(self.number(element, "hasdep", 0, 1)),
        )

    def check_waits(self, gpu: Gpu) -> None:
        """Check that what is read, written and waited for is there."""
        for block in gpu.blocks:
            for step in block.steps:
                for kinds, what, buffer, first in (
                    (READING, "src", step.source, step.source_chunk),
                    (WRITING, "dst", step.target, step.target_chunk),
                ):
                    if step.type in kinds and not 0 <= first <= first + step.count <= gpu.chunks[buffer]:
                        raise self.error(
                            step,
                            f"{what}off={first}, cnt={step.count}: out of range, buffer {buffer} "
                            f"has {gpu.chunks[buffer]} chunks ({buffer}_chunks)",
                        )
                if step.wait_block < 0:
                    continue
                steps = gpu.blocks[step.wait_block].steps if step.wait_block < len(gpu.blocks) else ()
                if not 0 <= step.wait_step < len(steps):
                    where = f"depid={step.wait_block}, deps={step.wait_step}"
                    raise self.error(step, f"{where}: there is no such step on this GPU")
                if not any(other.is_awaited for other in steps[step.wait_step :]):
                    raise self.error(step, "waits for a step with hasdep=0, which tells nobody of its end")

    def children(self, element: _Element, tag: str) -> list[_Element]:
        for child in element.children:
            if child.tag != tag:
                raise self.error(child, f"expected <{tag}> in <{element.tag}>, got <{child.tag}>")
        return element.children

    def text(self, element: _Element, name: str) -> str:
        try:
            return element.attributes[name]
        except KeyError:
            raise self.error(element, f"<{element.tag}> has no attribute {name!r}") from None

    def number(self, element: _Element, name: str, low: int, high: int) -> int:
        text = self.text(element, name)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and low <= int(text) <= high):
            raise self.error(element, f"{name} is a number from {low} to {high}; got {text!r}")
        return int(text)

    def error(self, at: _Element | MscclTransfer, text: str) -> AlgorithmFileError:
        return AlgorithmFileError(f"{self.origin}, line {at.line}: {text}")
