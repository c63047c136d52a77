"""Rounds as a program: the moves of all ranks, chunks that travel together as one message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from collectives.formats.schedule_file import Message
from collectives.synthesis.rounds import Edge, Rounds
from collectives.synthesis.symmetry import Symmetry

Numbering = Callable[[int, int], int]
"""The chunk of the buffer that a chunk of a first root is under a renumbering: of the two numbers."""


def messages_of(
    rounds: Rounds, symmetry: Symmetry, chunk_of: Numbering, *, backwards: bool = False
) -> tuple[tuple[Message, ...], ...]:
    """Return the messages of each step; *backwards* makes a gather the reduction that is its mirror."""
    images: Sequence[Sequence[int]] = symmetry.ranks.tolist()
    steps = [_step(moves, images, chunk_of, backwards) for moves in rounds.moves]
    return tuple(reversed(steps)) if backwards else tuple(steps)


def _step(
    moves: Iterable[tuple[int, Edge]], images: Sequence[Sequence[int]], chunk_of: Numbering, backwards: bool
) -> tuple[Message, ...]:
    chunks: defaultdict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for chunk, edge in moves:
        for element, image in enumerate(images):
            source, destination = image[edge.source], image[edge.destination]
            if backwards:
                source, destination = destination, source
            chunks[source, destination, edge.reduces or backwards].append(chunk_of(chunk, element))
    messages: list[Message] = []
    for (source, destination, reduces), moved in chunks.items():
        moved.sort()
        start = moved[0]
        for before, after in zip(moved, [*moved[1:], -1], strict=True):
            if after != before + 1:
                messages.append(Message(source, destination, start, start, before + 1 - start, reduces))
                start = after
    return tuple(messages)
