"""Attributes that are replaced for the time of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Replacement: TypeAlias = tuple[Any, str, Any]
"""An owner, the name of its attribute, and what stands there meanwhile."""

_ABSENT = object()


@contextlib.contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Replace attributes while the body runs.

    One that its owner inherits is inherited again afterwards.
    """
    done: list[Replacement] = []
    try:
        for owner, name, value in replacements:
            done.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, before in reversed(done):
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
