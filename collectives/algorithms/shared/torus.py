"""A torus of ranks: the lengths of its dimensions, of which the first is that of consecutive ranks."""

from __future__ import annotations

import math

from collectives.errors import NotSupportedError

_MAX_DIGITS = 9


def most_square(world_size: int) -> tuple[int, int]:
    """Return the sides of the torus of two dimensions in which they differ least."""
    short = max(side for side in range(1, math.isqrt(world_size) + 1) if world_size % side == 0)
    return short, world_size // short


def parse_sides(shape: str, world_size: int, default: str, what: str) -> tuple[int, ...]:
    """Return the sides that *shape*, such as ``2x4x8``, stands for.

    Raises:
        NotSupportedError: they do not make up *world_size*; the message names *what* refuses and what it
            does without a shape, the *default*.
    """
    parts = str(shape).split("x")
    sides = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= _MAX_DIGITS)
    if len(sides) != len(parts) or math.prod(sides) != world_size:
        short, long = most_square(world_size)
        raise NotSupportedError(
            f"{what}: shape {shape!r} is no torus of {world_size} ranks; expected sides with that product, "
            f"such as {short}x{long}, or no shape for {default}"
        )
    return sides
