"""Extrapolation of what grows by the same each time: layers, micro-batches, parts of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

Figures = TypeVar("Figures", bound=Sequence[Any])


def extrapolated(own: Figures, times: float, before: Figures, after: Figures) -> Figures:
    """Return named figures with so many times what *after* has more than *before*, tuples one by one."""

    def at(one: Any, less: Any, more: Any) -> Any:
        if isinstance(one, tuple):
            return tuple(map(at, one, less, more))
        return one + times * (more - less)

    return type(own)(*map(at, own, before, after))
