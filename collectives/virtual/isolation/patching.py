"""Attributes that are replaced for the time of a run, and classes that stand in the place of others."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, TypeAlias

from sim.cluster import current_rank_thread

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


def on_ranks(
    original: Any, virtual: Callable[..., Any], here: Callable[[], Any] = current_rank_thread
) -> Any:
    """Return what is *virtual* where *here* gives something, called with that first, else *original*.

    By default that is the thread of a rank.
    """

    @functools.wraps(original)
    def called(*args: Any, **options: Any) -> Any:
        found = here()
        return original(*args, **options) if found is None else virtual(found, *args, **options)

    return called


def observed(
    original: Any, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None
) -> Any:
    """Return *original*, of whose calls on rank threads others are told.

    Args:
        original: a function or method.
        before: called with the rank thread and the arguments.
        after: called with the rank thread, the result and the arguments.
    """

    @functools.wraps(original)
    def called(*args: Any, **options: Any) -> Any:
        rank_thread = current_rank_thread()
        if before is not None and rank_thread is not None:
            before(rank_thread, *args, **options)
        result = original(*args, **options)
        if after is not None and rank_thread is not None:
            after(rank_thread, result, *args, **options)
        return result

    return called


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
