"""A script's own modules, imported once for each rank, as each process would import them.

A module is the script's own if it lies in the script's folder or below, outside of the places where
libraries are installed.  Its globals are then a rank's own, and what it does when it is imported,
even a collective, each rank does for itself.  All other modules are shared between ranks; so is a
module of that folder which this process had imported before the run.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.torch_backend.script import text_of
from sim.cluster import Cluster

_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_module_locks: Any = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
_OURS = ("collectives", "ddp", "sim", "testbed")  # one for all ranks, wherever they lie


class OwnModules:
    """What every rank has imported from *folder*: a `sim.cluster.RankContext`, and a finder of modules.

    Args:
        folder: of the script.
        ranks: those that have a thread.
        on_text: called with the text of each own module before it first runs, None where there is none.
    """

    def __init__(self, folder: Path, ranks: Sequence[int], on_text: Callable[[str | None], None]) -> None:
        self._folder = folder.resolve()
        self._on_text = on_text
        self._names: dict[str, None] = {}
        # A rank may wait in the middle of an import, in which it holds the lock of a module's name.
        self._swapped = [_Items(ranks, sys.modules), _Items(ranks, _module_locks)]

    def enter(self, rank: int) -> None:
        """Put *rank*'s modules in place."""
        for items in self._swapped:
            items.enter(rank, self._names)

    def leave(self, rank: int) -> None:
        """Take them away again."""
        for items in self._swapped:
            items.leave(rank, self._names)

    def switch(self, before: int, after: int) -> None:
        """Take one rank's away, and put another's in place."""
        self.leave(before)
        self.enter(after)

    @contextmanager
    def found(self) -> Iterator[None]:
        """Find own modules while the body runs."""
        finders: list[Any] = sys.meta_path
        finders.insert(finders.index(PathFinder) if PathFinder in finders else len(finders), self)
        try:
            yield
        finally:
            finders.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where an own module is; None for any other."""
        if Cluster.current() is None or name.partition(".")[0] in _OURS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not self._is_own(spec):
            return None
        if name not in self._names:
            self._names[name] = None
            self._on_text(text_of(spec))
        return spec

    def _is_own(self, spec: ModuleSpec) -> bool:
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        paths = [Path(place).resolve() for place in places if place]
        return bool(paths) and all(
            path.is_relative_to(self._folder) and not any(map(path.is_relative_to, _LIBRARIES))
            for path in paths
        )


class _Items:
    """Items of a mapping of the process, some of which each rank has for itself."""

    def __init__(self, ranks: Sequence[int], owner: MutableMapping[str, Any]) -> None:
        self._owner = owner
        self._of_rank: dict[int, dict[str, Any]] = {rank: {} for rank in ranks}
        self._outside: dict[str, Any] = {}

    def enter(self, rank: int, names: dict[str, None]) -> None:
        self._outside = self._take(names)
        self._owner.update(self._of_rank[rank])

    def leave(self, rank: int, names: dict[str, None]) -> None:
        self._of_rank[rank] = self._take(names)
        self._owner.update(self._outside)

    def _take(self, names: dict[str, None]) -> dict[str, Any]:
        return {name: self._owner.pop(name) for name in names if name in self._owner}
