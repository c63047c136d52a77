"""A schedule as a JSON file: the messages of all ranks, step by step, for one number of ranks.

    {"schema": 1, "name": "forest", "collective": "all_gather", "ranks": 2, "chunks": 2, "scratch": 0,
     "root": 0, "network": {"name": "dgx-a100", "digest": "0123456789abcdef"}, "made_by": "…",
     "steps": [[[0, 1, 0, 0, 1, false], [1, 0, 1, 1, 1, false]]]}

A message is ``[source, destination, source chunk, chunk, number of chunks, whether it is reduced in]``; both
sides take part in the same step, in the order listed.  One whose source is its destination is a copy on that
rank.  A file is data: a program that is read from it is proved, simulated and run like any other.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collectives.errors import AlgorithmFileError, NotSupportedError
from collectives.formats.json_document import read_json_document
from collectives.program import Algorithm, Copy, Local, Operation, Recv, RecvReduce, Reduce, Send, Step
from collectives.program.contracts import CONTRACTS

MAX_RANKS = 4096
MAX_CHUNKS = 1 << 20

_Number = Annotated[int, Field(ge=0, le=MAX_CHUNKS)]


class Message(NamedTuple):
    """Chunks that go from one rank to another, or are copied on one."""

    source: _Number
    destination: _Number
    source_chunk: _Number
    chunk: _Number
    num_chunks: Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
    reduces: bool


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class NetworkOfSchedule(_Fields):
    """For which network a schedule was made.

    Attributes:
        name: of the network.
        digest: of its topology, equal only for networks that behave alike.
    """

    name: Annotated[str, Field(max_length=200)]
    digest: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class Schedule(_Fields):
    """A program for one number of ranks, as data.

    Attributes:
        schema_version: of the format (``schema`` in the file).
        name: of the program.
        collective: whose contract it fulfils.
        ranks: how many take part.
        chunks: into how many the buffer is divided.
        scratch: chunks of room of its own.
        root: of a rooted collective.
        network: for which it was made.
        made_by: how, for people.
        steps: of each step its messages.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    collective: str
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    chunks: Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
    scratch: Annotated[int, Field(ge=0, le=MAX_CHUNKS)] = 0
    root: Annotated[int, Field(ge=0, lt=MAX_RANKS)] = 0
    network: NetworkOfSchedule
    made_by: Annotated[str, Field(max_length=500)] = ""
    steps: tuple[tuple[Message, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        if self.collective not in CONTRACTS:
            raise ValueError(
                f"collective: expected one of {', '.join(CONTRACTS)}, got {self.collective!r:.40}"
            )
        if self.root >= self.ranks:
            raise ValueError(f"root: expected a rank from 0 to {self.ranks - 1}, got {self.root}")
        parts = CONTRACTS[self.collective].num_parts(self.ranks)
        if self.chunks % parts:
            raise ValueError(f"chunks: expected a multiple of the {parts} parts, got {self.chunks}")
        room = self.chunks + self.scratch
        for number, step in enumerate(self.steps, start=1):
            for place, message in enumerate(step, start=1):
                where = f"steps {number}, {place}"
                if max(message.source, message.destination) >= self.ranks:
                    raise ValueError(f"{where}: expected ranks from 0 to {self.ranks - 1}, got {message[:2]}")
                if max(message.source_chunk, message.chunk) + message.num_chunks > room:
                    raise ValueError(f"{where}: expected chunks below {room}, got {message[2:5]}")
        return self

    @classmethod
    def of(cls, algorithm: Algorithm, world_size: int, network: NetworkOfSchedule) -> Schedule:
        """Return *algorithm*, which is proved, for *world_size* ranks: what all do in a step, side by side.

        Raises:
            NotSupportedError: the ends of a message are in different steps, or it does not run on so many
                ranks.
        """
        of_ranks = [algorithm.steps(rank, world_size) for rank in range(world_size)]
        return cls(
            name=algorithm.name,
            collective=algorithm.collective,
            ranks=world_size,
            chunks=algorithm.num_chunks(world_size),
            scratch=algorithm.num_scratch_chunks(world_size),
            root=algorithm.parameters.get("root", 0),
            network=network,
            made_by=f"{algorithm}, as it ships",
            steps=tuple(
                _messages(step, f"{algorithm}, step {number}")
                for number, step in enumerate(zip_longest(*of_ranks, fillvalue=()))
            ),
        )

    def algorithm(self, origin: str = "") -> Algorithm:
        """Return the program; *origin* is the file that it is from."""
        return _algorithm(self, origin or self.name)

    def save(self, path: Path) -> None:
        """Write it to *path*, whole or not at all, a step on a line.

        Raises:
            OSError: it cannot be written.
        """
        from collectives.formats.whole_file import write_whole

        head = self.model_dump(by_alias=True, exclude={"steps"})
        lines = ",\n".join(f"  {json.dumps(step, separators=(',', ':'))}" for step in self.steps)
        write_whole(path, f'{json.dumps(head, indent=1)[:-2]},\n "steps": [\n{lines}\n ]\n}}\n')


def load_schedule(path: str | Path) -> Algorithm:
    """Return the program in the file at *path*, for the number of ranks that the file is for.

    Raises:
        AlgorithmFileError: the file cannot be read, or is no schedule; the message says where.
    """
    try:
        schedule = read_json_document(
            path, Schedule, AlgorithmFileError, "a schedule (testbed synthesize --output FILE writes one)"
        )
    except OSError as error:
        raise AlgorithmFileError(f"{path}: cannot read this schedule: {error.strerror}") from None
    return schedule.algorithm(str(path))


@dataclass(frozen=True)
class _Counts:
    """Numbers of chunks, which are known for one number of ranks."""

    origin: str
    ranks: int
    number: int

    def __call__(self, world_size: int) -> int:
        if world_size != self.ranks:
            raise NotSupportedError(
                f"{self.origin} is for {self.ranks} ranks, got {world_size}; ask for {self.ranks}, or make "
                f"one for {world_size}: testbed synthesize --ranks {world_size}"
            )
        return self.number


def _algorithm(schedule: Schedule, origin: str) -> Algorithm:
    chunks_for = _Counts(origin, schedule.ranks, schedule.chunks)
    per_rank = _steps_of_ranks(schedule)

    def program(rank: int, world_size: int) -> Iterator[Step]:
        chunks_for(world_size)
        yield from per_rank[rank]

    def rooted(rank: int, world_size: int, *, root: int = schedule.root) -> Iterator[Step]:
        if root != schedule.root:
            raise NotSupportedError(
                f"{origin} is for root {schedule.root}, got {root}; make one for that root"
            )
        return program(rank, world_size)

    has_root = schedule.collective in ("broadcast", "reduce", "gather", "scatter")
    chosen = rooted if has_root else program
    chosen.__name__ = schedule.name
    made = f" {schedule.made_by}." if schedule.made_by else ""
    chosen.__doc__ = (
        f"Yield this rank's steps of {schedule.name}, made for {schedule.ranks} ranks of "
        f"{schedule.network.name}.\n\nIts topology has the digest {schedule.network.digest}.{made}\n\n"
        f"Source: {origin}."
    )
    return Algorithm(
        name=schedule.name,
        program=chosen,
        collective=schedule.collective,
        chunks_for=chunks_for,
        scratch_for=_Counts(origin, schedule.ranks, schedule.scratch),
        parameters=MappingProxyType({"root": schedule.root} if has_root else {}),
    )


def _steps_of_ranks(schedule: Schedule) -> Sequence[Sequence[Step]]:
    steps: list[list[Step]] = [[] for _ in range(schedule.ranks)]
    for step in schedule.steps:
        taken: list[list[Operation]] = [[] for _ in range(schedule.ranks)]
        for source, destination, source_chunk, chunk, count, reduces in step:
            if source == destination:
                local = Reduce if reduces else Copy
                taken[source].append(local(source_chunk, chunk, count))
                continue
            taken[source].append(Send(destination, source_chunk, count))
            receive = RecvReduce if reduces else Recv
            taken[destination].append(receive(source, chunk, count))
        for rank, operations in enumerate(taken):
            steps[rank].append(tuple(operations))
    return steps


def _messages(step: tuple[Step, ...], where: str) -> tuple[Message, ...]:
    sent: defaultdict[tuple[int, int], deque[Send]] = defaultdict(deque)
    for rank, operations in enumerate(step):
        for operation in operations:
            if isinstance(operation, Send):
                sent[rank, operation.peer].append(operation)
    messages: list[Message] = []
    for rank, operations in enumerate(step):
        for operation in operations:
            if isinstance(operation, Local):
                source, start = rank, operation.source
            elif isinstance(operation, Recv | RecvReduce):
                source = operation.peer
                if not sent[source, rank]:
                    raise NotSupportedError(f"{where}: rank {rank} receives what is sent in another step")
                start = sent[source, rank].popleft().chunk
            else:
                continue
            messages.append(
                Message(source, rank, start, operation.chunk, operation.num_chunks, operation.reduces)
            )
    if any(sent.values()):
        raise NotSupportedError(f"{where}: what is sent is received in another step")
    return tuple(messages)
