"""An MSCCL file as a program of ours, to be proved, simulated and run like any other.

Messages and moves get levels, and all of a level is one step: a message is in the same step on both
sides, so that nothing waits for itself under rendezvous.  An event comes as early as it can: a step
after what wrote the chunks that it reads, not before what reads the chunks that it writes, a step
after the message before it on the same connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from collectives.errors import NotSupportedError
from collectives.formats.msccl_file import MscclFile, parse_msccl, read_msccl_file
from collectives.formats.msccl_trace import Event, MscclTrace
from collectives.program import Algorithm, Copy, Operation, Recv, RecvReduce, Reduce, Send, Step
from collectives.program.thread_blocks import ThreadBlocks


def load_msccl_xml(path: str | Path) -> Algorithm:
    """Return the program in the file at *path*, for the number of ranks that the file is for.

    Raises:
        AlgorithmFileError: it is no MSCCL XML, or it makes no sense; the message says where.
        NotSupportedError: it cannot be written as steps that work under rendezvous.
    """
    return _algorithm(read_msccl_file(path))


def from_msccl_xml(content: str | bytes) -> Algorithm:
    """Return the program that *content* is, as `load_msccl_xml`."""
    return _algorithm(parse_msccl(content))


def _algorithm(file: MscclFile) -> Algorithm:
    trace = MscclTrace(file)
    steps = _steps(file, trace)
    num_ranks = len(file.gpus)

    def check(world_size: int) -> None:
        if world_size != num_ranks:
            raise NotSupportedError(
                f"{file.origin} is for {num_ranks} ranks (ngpus), got {world_size}; ask for {num_ranks}, "
                f"or export one for {world_size}"
            )

    def num_chunks(world_size: int) -> int:
        check(world_size)
        return file.num_chunks

    def program(rank: int, world_size: int) -> Iterator[Step]:
        check(world_size)
        yield from steps[rank]

    program.__name__ = file.name
    program.__doc__ = (
        f"Yield this rank's steps of {file.name}, read from MSCCL XML for {num_ranks} ranks.\n\n"
        "Every message is in the same step on both sides, as early as what it reads is there.\n\n"
        f"Source: {file.origin}."
    )
    return Algorithm(
        name=file.name,
        program=program,
        collective=file.collective,
        chunks_for=num_chunks,
        scratch_for=lambda world_size: trace.num_scratch,
        thread_blocks=ThreadBlocks(
            file.protocol,
            tuple(
                f"GPU {rank} thread block {number}"
                for rank, gpu in enumerate(file.gpus)
                for number, _ in enumerate(gpu.blocks)
            ),
            len({block.channel for gpu in file.gpus for block in gpu.blocks if block.steps}),
            trace.ends,
        ),
    )


def _steps(file: MscclFile, trace: MscclTrace) -> list[list[Step]]:
    """Return the steps of each rank."""
    levels = _levels(file, trace.events)
    last = max(levels, default=-1)
    steps: list[list[list[Operation]]] = [[[] for _ in range(last + 1)] for _ in file.gpus]
    # Both sides list the messages of a step in one order, so they match; reductions apply in it.
    for event in sorted(trace.events, key=lambda event: event.written):
        level = levels[event.number]
        for source, target, length in _runs(event.pairs, trace.num_chunks):
            if event.sender == event.receiver:
                local = Reduce if event.reduces else Copy
                steps[event.sender][level].append(local(source, target, length))
                continue
            receive = RecvReduce if event.reduces else Recv
            channel = event.channel
            steps[event.sender][level].append(Send(event.receiver, source, length, channel=channel))
            steps[event.receiver][level].append(receive(event.sender, target, length, channel=channel))
    return [[tuple(operations) for operations in rank] for rank in steps]


def _runs(pairs: list[tuple[int, int]], num_chunks: int) -> Iterator[tuple[int, int, int]]:
    """Yield ``(source, target, length)`` where both sides go on, inside the buffer or inside scratch."""
    start = 0
    for position in range(1, len(pairs) + 1):
        if position < len(pairs):
            before, pair = pairs[position - 1], pairs[position]
            goes_on = pair == (before[0] + 1, before[1] + 1)
            if goes_on and num_chunks not in pair:
                continue
        yield (*pairs[start], position - start)
        start = position


def _levels(file: MscclFile, events: list[Event]) -> list[int]:
    """Return the earliest step of each event.

    Events that may not be before each other are in one step; if one of them must be a step after
    another as well, no order exists.
    """
    levels = [0] * len(events)
    for group in _groups(events):
        earliest = 0
        for number in sorted(group):
            for other, distance in events[number].after:
                if other.number not in group:
                    earliest = max(earliest, levels[other.number] + distance)
                elif distance:
                    raise NotSupportedError(
                        f"{file.origin}, line {events[number].line}: this step and that on line {other.line} "
                        "wait for each other unless messages are buffered; steps of ours must do without"
                    )
        for number in group:
            levels[number] = earliest
    return levels


def _groups(events: list[Event]) -> Iterator[set[int]]:
    """Yield events that come after each other in a circle together, and what they come after first.

    That is the order of Nuutila and Soisalon-Soininen, "On finding the strongly connected components in a
    directed graph", Information Processing Letters 49(1), 1994.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(events)))
    graph.add_edges_from((event.number, other.number) for event in events for other, _ in event.after)
    yield from nx.strongly_connected_components(graph)
