"""A script's own modules, imported once for each rank, as each process would import them.

Which these are says `Ownership`.  Their globals are then a rank's own, and what they do when they are
imported, even a collective, each rank does for itself.  All other modules are shared between ranks; names
that those have taken from a rank's own modules are each rank's, too (`collectives.virtual.isolation.loans`).
Where the script's folder has a package that is called as one of ours, it finds its own, and we find ours.

A copy costs what executing a module costs: it is read once, and its code is one for all ranks.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import collectives
from collectives.torch_backend.script import text_of
from collectives.virtual.isolation.items import EntriesPerRank, ItemsPerRank
from collectives.virtual.isolation.loans import Loans
from collectives.virtual.isolation.ownership import OURS, Ownership, can_copy
from collectives.virtual.isolation.patching import replaced
from sim.cluster import Cluster

_module_locks: Any = importlib._bootstrap._module_locks  # type: ignore[attr-defined]


class OwnModules:
    """What every rank has imported for itself: a `sim.cluster.RankContext`, and a finder of modules."""

    def __init__(
        self, ownership: Ownership, search_path: Sequence[str], on_text: Callable[[str | None], None]
    ) -> None:
        self._ownership = ownership
        self._on_text = on_text
        self._modules = ItemsPerRank(sys.modules)
        # A rank may wait in the middle of an import, in which it holds the lock of a module's name.
        self._locks = EntriesPerRank(_module_locks, self._modules)
        self._codes: dict[str, CodeType] = {}
        self._folders: dict[str, str] = {}  # where a rank found a module that is in no package
        self._loans = Loans(self._modules, ownership)
        self._is_filling = False

        shadowed = ownership.shadowed(search_path)
        for name in shadowed:
            importlib.import_module(name)  # ours, which later could no longer be found
        hidden = ownership.hidden(shadowed)
        for name in hidden:
            self._modules.add(name)
        self._ours = ShadowedPackages(name for name in hidden if name.partition(".")[0] in OURS)
        self._loans.begin(set(hidden) - self._ours.names)

    def enter(self, rank: int) -> None:
        """Put *rank*'s modules in place."""
        self._keep(None)
        self._put(rank)

    def leave(self, rank: int) -> None:
        """Take them away again."""
        self._keep(rank)
        self._put(None)

    def switch(self, before: int, after: int) -> None:
        """Take one rank's away, and put another's in place."""
        self._keep(before)
        self._put(after)

    @contextmanager
    def found(self) -> Iterator[None]:
        """Find own modules while the body runs."""
        finders: list[Any] = sys.meta_path
        finders.insert(finders.index(PathFinder) if PathFinder in finders else len(finders), self)
        try:
            with self._ours.found_by_us():
                yield
        finally:
            finders.remove(self)
            self._loans.settle()

    def shared(self) -> list[ModuleType]:
        """Return the modules that ranks share of packages of which each could have a copy."""
        modules = [
            module
            for name, module in list(sys.modules.items())
            if name not in self._modules and name != "__main__"
        ]
        return [module for module in modules if issubclass(type(module), ModuleType) and can_copy(module)]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where an own module is; None for any other."""
        if Cluster.current() is None and not self._is_filling:
            return None
        top = name.partition(".")[0]
        if top in OURS and top not in self._ours.packages:
            return None
        covered = self._ownership.covers(name)
        spec = None if covered else PathFinder.find_spec(name, path, target)
        if spec is None:
            spec = self._found_elsewhere(name, path, target)
        if spec is None or spec not in self._ownership:
            return None
        if covered:
            self._read_once(spec)
        if self._ownership.covers(name):
            self._share_what_is_refused(spec)
        if path is None:
            self._folders[name] = _folder_of(spec)
        if name not in self._modules:
            self._modules.add(name)
            if not covered:
                self._on_text(text_of(spec))
        return spec

    def _found_elsewhere(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Return what the process's other finders find, which know of packages installed in other ways."""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                return spec
        if self._is_filling and name in self._folders:  # this rank's ``sys.path`` may not have it yet
            return PathFinder.find_spec(name, [self._folders[name]], target)
        return None

    def _read_once(self, spec: ModuleSpec) -> None:
        """Let the code of a module be one for all ranks."""
        loader: Any = spec.loader
        get_code = getattr(loader, "get_code", None)
        if get_code is None:
            return

        def code(name: str) -> CodeType:
            if name not in self._codes:
                self._codes[name] = get_code(name)
            return self._codes[name]

        loader.get_code = code

    def _share_what_is_refused(self, spec: ModuleSpec) -> None:
        """Let a rank that cannot execute an installed package again have the first rank's.

        One that registers something with a library which keeps it once for a process cannot be executed
        twice: pyarrow's types of extensions, for example.
        """
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or self._ownership.in_folder(spec):
            return

        def executed(module: ModuleType) -> None:
            name, top = spec.name, spec.name.partition(".")[0]
            try:
                execute(module)
            except Exception:
                first = {
                    own: found
                    for own, found in self._modules.of_first().items()
                    if f"{own}.".startswith(f"{name}.") and not _is_executing(found)
                }
                if name not in first or (name != top and _is_executing(sys.modules[top])):
                    raise
                sys.modules.update(first)

        loader.exec_module = executed

    def _keep(self, rank: int | None) -> None:
        num_own = self._modules.keep(rank)
        if rank is not None and self._loans.look(rank, num_own):
            self._modules.keep(rank)
        self._locks.keep(rank)
        self._loans.keep(rank)

    def _put(self, rank: int | None) -> None:
        self._modules.put(rank)
        self._locks.put(rank)
        self._loans.put(rank)
        if rank is not None:
            self._is_filling = True
            try:
                self._loans.fill(rank)
            finally:
                self._is_filling = False


def _folder_of(spec: ModuleSpec) -> str:
    """Return in which folder a module or package that is in no other was found."""
    packages = [*(spec.submodule_search_locations or ())]
    return str(Path(packages[0] if packages else str(spec.origin)).parent)


def _is_executing(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


_FOLDER = str(Path(collectives.__file__).resolve().parents[1])


class ShadowedPackages:
    """Modules of ours that rank threads do not find, but for our own code.

    Attributes:
        names: of the modules.
        packages: that they are in.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._modules: dict[str, ModuleType] = {name: sys.modules[name] for name in names}
        self.names = frozenset(self._modules)
        self.packages = frozenset(name.partition(".")[0] for name in self._modules)
        self._are_in_place = False

    @contextmanager
    def found_by_us(self) -> Iterator[None]:
        """Let what our code imports while the body runs be ours."""
        if not self.packages:
            yield
            return
        find = builtins.__import__

        def find_ours(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Any = (),
            level: int = 0,
        ) -> ModuleType:
            if self._are_in_place or globals is None or not self._is_ours(globals):
                return find(name, globals, locals, fromlist, level)
            with self._in_place():
                return find(name, globals, locals, fromlist, level)

        try:
            with replaced([(builtins, "__import__", find_ours)]):
                yield
        finally:
            sys.modules.update(self._modules)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        theirs = self._taken()
        sys.modules.update(self._modules)
        self._are_in_place = True
        try:
            yield
        finally:
            self._are_in_place = False
            self._modules = self._taken()
            sys.modules.update(theirs)

    def _taken(self) -> dict[str, ModuleType]:
        """Take the packages' modules, whosever they are, out of those that are found."""
        names = [name for name in sys.modules if name.partition(".")[0] in self.packages]
        return {name: sys.modules.pop(name) for name in names}

    @staticmethod
    def _is_ours(variables: Mapping[str, Any]) -> bool:
        package = str(variables.get("__name__")).partition(".")[0]
        path = str(variables.get("__file__"))
        return path.startswith(_FOLDER) and package in OURS
