"""The Pareto front: designs that no other one beats in everything that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def front(items: Iterable[T], objectives: Sequence[Callable[[T], float]]) -> list[T]:
    """Return those of *items* than which no other is at least as good in all *objectives* and better in one.

    Args:
        items: in any order; equals stay together, in their order.
        objectives: each is better where it is smaller.

    Returns:
        The front, ascending in the first objective, of equals there in the second, and so on.
    """
    scored = sorted(
        ((tuple(own(item) for own in objectives), item) for item in items), key=lambda pair: pair[0]
    )
    kept: list[tuple[tuple[float, ...], T]] = []
    for score, item in scored:  # only what comes before can beat it
        if not any(_beats(other, score) for other, _ in kept):
            kept.append((score, item))
    return [item for _, item in kept]


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= yours for mine, yours in zip(one, other, strict=True))
