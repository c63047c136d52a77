"""State of loggers, of which each rank has its own: levels, handlers, filters.

Loggers stay the same objects, as modules hold on to them.  What ``logging.basicConfig``, ``setLevel`` or
``addHandler`` change on a rank's thread holds for that rank; it begins with what this process has.  So every
rank that asks for it has a handler, which writes to that rank's output.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from collectives.virtual.isolation.patching import Replacement, replaced
from sim.cluster import Cluster

_OF_LOGGERS = ("level", "handlers", "filters", "propagate", "disabled", "_cache")


@contextlib.contextmanager
def loggers_of_ranks() -> Iterator[None]:
    """Let each rank have the state of loggers for itself while the body runs."""
    replacements: list[Replacement] = [(logging.Logger, name, _PerRank(name)) for name in _OF_LOGGERS]
    replacements.append((logging.Manager, "_disable", _PerRank("_disable")))
    with replaced(replacements):
        try:
            yield
        finally:
            logging.root.manager._clear_cache()  # type: ignore[attr-defined]


class _PerRank:
    """Attribute *name* of objects: outside of ranks where it always is; a rank's own once it asked for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._of_rank: dict[int, WeakKeyDictionary[Any, Any]] = {}

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        own = self._own()
        if own is None:
            return self._outside(owner)
        if owner not in own:
            value = self._outside(owner)
            if not isinstance(value, list | dict):
                return value
            own[owner] = copy.copy(value)
        return own[owner]

    def __set__(self, owner: Any, value: Any) -> None:
        own = self._own()
        if own is None or self._name not in vars(owner):  # it is just being made
            vars(owner)[self._name] = value
        else:
            own[owner] = value

    def _own(self) -> WeakKeyDictionary[Any, Any] | None:
        rank_thread = Cluster.current()
        if rank_thread is None:
            return None
        return self._of_rank.setdefault(rank_thread.rank, WeakKeyDictionary())

    def _outside(self, owner: Any) -> Any:
        try:
            return vars(owner)[self._name]
        except KeyError:
            raise AttributeError(self._name, name=self._name, obj=owner) from None
