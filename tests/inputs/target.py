"""A target of mutation: something that reads what users give, how inputs for it are drawn, and its oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Target:
    """Something that reads.

    Attributes:
        name: of the target.
        draw: returns an input, most of which are wrong somewhere.
        read: reads it; raises one of the project's own errors where it is refused, and AssertionError
            where what is accepted does not hold (see "right or refused" in docs/security.md).
        weight: how many of its inputs are drawn beside those of the others.
    """

    name: str
    draw: Callable[[Random], bytes]
    read: Callable[[bytes], None]
    weight: int = 1


def text_of(content: bytes) -> str:
    """Return *content* as text, as a command line or a file read by text has it."""
    return content.decode("utf-8", "replace")


def same(one: object, other: object, what: str) -> None:
    """Assert that two readings are the same.

    Raises:
        AssertionError: they are not; says *what* was compared.
    """
    if one != other:
        raise AssertionError(f"{what}: {str(one)[:300]} and {str(other)[:300]}")
