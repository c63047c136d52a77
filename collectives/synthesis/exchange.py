"""Rounds of an all-to-all as a program: where parts lie on their way.

Part d of rank s goes to part s of rank d, which may be there before rank d has sent away its own part s.
Then, and at ranks between, a chunk lies in scratch until its place is free, or until it goes on.  A step
reads what was there when it began, so a place is free from the step on in which its last content leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from collectives.formats.schedule_file import Message
from collectives.synthesis.demand import Tree
from collectives.synthesis.rounds import Rounds
from collectives.synthesis.symmetry import Symmetry


class _Hop(NamedTuple):
    """A message of a path: in which step, and between whom."""

    step: int
    source: int
    destination: int


def exchange_steps(
    rounds: Rounds, trees: Sequence[Tree], symmetry: Symmetry, chunks: int
) -> tuple[tuple[tuple[Message, ...], ...], int]:
    """Return the messages of each step, and how many chunks of scratch they need.

    *trees* has a path for each chunk of the first roots of orbits; *chunks* are those of each part.
    """
    num_ranks = symmetry.ranks.shape[1]
    hops: list[list[_Hop]] = [[] for _ in trees]
    for step, moves in enumerate(rounds.moves):
        for number, edge in moves:
            hops[number].append(_Hop(step, edge.source, edge.destination))
    seen: defaultdict[tuple[int, int | None], int] = defaultdict(int)
    position: list[int] = []
    for tree in trees:
        position.append(seen[tree.root, tree.destination])
        seen[tree.root, tree.destination] += 1

    leaves: dict[tuple[int, int, int], int] = {}
    images: Sequence[Sequence[int]] = symmetry.ranks.tolist()
    for image in images:
        for path, place in zip(hops, position, strict=True):
            leaves[image[path[0].source], image[path[-1].destination], place] = path[0].step

    scratch = _Scratch(num_ranks * chunks, chunks)
    moved: list[defaultdict[tuple[int, int], list[tuple[int, int]]]]
    moved = [defaultdict(list) for _ in rounds.moves]
    arrivals = sorted(
        (hop.step, number, stage) for number, path in enumerate(hops) for stage, hop in enumerate(path)
    )
    lies = [[-1] * len(trees) for _ in images]
    for step, number, stage in arrivals:
        path, place = hops[number], position[number]
        for element, image in enumerate(images):
            first, last = image[path[0].source], image[path[-1].destination]
            source, destination = image[path[stage].source], image[path[stage].destination]
            start = lies[element][number] if stage else last * chunks + place
            if stage < len(path) - 1:
                end = scratch.take(destination, place, step, path[stage + 1].step)
            else:
                end = first * chunks + place
                free = leaves[last, first, place]
                if free > step:
                    kept = scratch.take(destination, place, step, free)
                    moved[free][destination, destination].append((kept, end))
                    end = kept
            lies[element][number] = end
            moved[step][source, destination].append((start, end))
    return tuple(messages_of(step, scratch.first) for step in moved), scratch.size


class _Scratch:
    """Room of the ranks, in blocks of as many chunks as a part has."""

    def __init__(self, first: int, chunks: int) -> None:
        self.first, self.chunks = first, chunks
        self.num_blocks = 0
        self._free_from: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    @property
    def size(self) -> int:
        """Chunks that are needed."""
        return self.num_blocks * self.chunks

    def take(self, rank: int, place: int, start: int, end: int) -> int:
        """Return a chunk of *rank* for the place in a part, which is its own from step *start* to *end*."""
        free_from = self._free_from[rank, place]
        block = next((number for number, free in enumerate(free_from) if free <= start), len(free_from))
        free_from[block : block + 1] = [end]
        self.num_blocks = max(self.num_blocks, len(free_from))
        return self.first + block * self.chunks + place


def messages_of(
    moved: dict[tuple[int, int], list[tuple[int, int]]], first_scratch: int
) -> tuple[Message, ...]:
    """Return the messages between pairs of ranks; chunks that lie side by side at both are one.

    The buffer and scratch, which begins with chunk *first_scratch*, are not side by side.
    """
    messages: list[Message] = []
    for (source, destination), chunks in moved.items():
        chunks.sort()
        count = 1
        for here, after in zip(chunks, [*chunks[1:], (-1, -1)], strict=True):
            if after == (here[0] + 1, here[1] + 1) and first_scratch not in after:
                count += 1
                continue
            messages.append(
                Message(source, destination, here[0] + 1 - count, here[1] + 1 - count, count, False)
            )
            count = 1
    return tuple(messages)
