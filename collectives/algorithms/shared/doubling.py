"""Powers of two: distances that double, of programs with a logarithmic number of steps."""

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


def powers_in(number: int) -> Iterator[int]:
    """Yield the powers of two of which *number* is the sum, the least first.

    Raises:
        ValueError: *number* is negative, and no such sum.
    """
    if number < 0:
        raise ValueError(f"{number} is no sum of powers of two; expected a number from 0 on")
    while number:
        power = number & -number
        yield power
        number -= power
