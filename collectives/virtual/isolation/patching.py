"""Attributes that are replaced for the time of a run, and classes that stand in the place of others."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
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


def class_in_place(original: Any, make: Callable[..., Any], *stands_for: type) -> type:
    """Return a class in the place of *original*, which has its attributes.

    Args:
        original: a class.
        make: makes an instance, given the frame of the caller and the arguments.
        stands_for: classes whose instances are taken for its own, besides those of *original*.
    """

    class Kind(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            frame: FrameType = sys._getframe(1)
            return make(frame, *args, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (original, *stands_for))

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    return Kind(original.__name__, (), {"__module__": original.__module__, "__doc__": original.__doc__})
