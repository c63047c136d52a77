"""Distances that double: those of programs with a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Iterator


def doublings(world_size: int) -> Iterator[int]:
    """Yield 1, 2, 4 … below *world_size*."""
    distance = 1
    while distance < world_size:
        yield distance
        distance *= 2


def halvings(world_size: int) -> Iterator[int]:
    """Yield the same, the greatest first."""
    for level in reversed(range(num_doublings(world_size))):
        yield 1 << level


def num_doublings(world_size: int) -> int:
    """Return how many `doublings` there are, ``⌈log2 p⌉``."""
    return (world_size - 1).bit_length()
