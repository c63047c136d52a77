"""A message from one rank to another: a program of one step, in which only those two take part."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from collectives.program import Algorithm, Recv, Send, Step


def _message(rank: int, world_size: int, *, source: int, destination: int) -> Iterator[Step]:
    yield (
        Send(destination, chunk=0, when=rank == source),
        Recv(source, chunk=0, when=rank == destination),
    )


@cache
def message(source: int, destination: int) -> Algorithm:
    """Return the program that takes the whole buffer from *source* to *destination*."""
    program = Algorithm("message", _message, collective="message", chunks_for=lambda world_size: 1)
    return program.with_parameters(source=source, destination=destination)
