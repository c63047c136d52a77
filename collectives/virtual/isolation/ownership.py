"""Ownership of modules: which ones each rank imports for itself, as a process of its own would.

- Those in the folder of a script or below, outside of the places where libraries are installed.
- Those that Python finds elsewhere outside of such places: in the working directory, by ``PYTHONPATH``, or
  where an editable installation points to.  A folder in which packages are described as installed
  (``*.dist-info``) is such a place.
- Of a script that is named as a module (``-m a.b.train``), the package that it is in.
- Packages that keep what a process has once, such as its rank, in their globals: those whose text says that
  they may (`collectives.virtual.isolation.texts_of_packages`), and those that `KEPT_APART` names; a run can
  be told of others.
- Modules that build on one of these: whose classes derive from one of its classes, for example
  (`collectives.virtual.isolation.loans`).

All others are shared between ranks, as are modules that are not written in Python.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.errors import NotSupportedError
from collectives.virtual.isolation.texts_of_packages import KNOW_NO_RANKS, may_keep_ranks

KEPT_APART = (
    "accelerate",
    "deepspeed",
    "hydra",
    "lightning",
    "lightning_fabric",
    "lightning_utilities.core.rank_zero",
    "omegaconf",
    "pytorch_lightning",
    "torchtitan",
    "transformers.integrations.deepspeed",
    "transformers.utils.logging",
    "wandb",
)
"""Packages and modules of which each rank has a copy of its own, where a script imports them.

Of a package of which only modules are named, the others are shared, whatever its text says: it is large.
"""
_OTHERS = KNOW_NO_RANKS | {name.partition(".")[0] for name in KEPT_APART}
"""Packages whose text is not asked for."""

OURS = ("_collective_testbed_entry", "collectives", "ddp", "sim", "testbed")
"""One for all ranks, wherever they lie; but the script's folder goes first, as elsewhere."""

_SHARED = frozenset({"torch", "numpy", *sys.stdlib_module_names})
_LIBRARIES = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
LIBRARY_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Folders of libraries by their name: a user's own lie in the home folder, where a script may lie, too."""


class Ownership:
    """Says of a module's name and place whether each rank has it for itself.

    Args:
        folder: of the script; None: of a function, whose modules are shared.
        packages: besides `KEPT_APART`: packages or modules, each with all that is in it.
        module: as which the script is named, if it is.

    Raises:
        NotSupportedError: there is no such package, or it cannot be copied.
    """

    def __init__(self, folder: Path | None, packages: Iterable[str] = (), module: str | None = None) -> None:
        self._folder = None if folder is None else folder.resolve()
        asked = tuple(packages)
        for name in asked:
            _check(name, () if folder is None else (str(folder),))
        self._packages = {*KEPT_APART, *asked}
        if module is not None and not _is_shared(module):
            self._packages.add(module.partition(".")[0])
        self._builders: set[str] = set()
        self._covered: dict[str, bool] = {}

    def add(self, name: str) -> None:
        """Let each rank have the module *name* for itself, since it builds on one that it has so."""
        self._builders.add(name)

    def covers(self, name: str) -> bool:
        """Return whether *name* is, or is in, a package of which each rank has a copy."""
        return name in self._builders or self._is_in_package(name)

    def _is_in_package(self, name: str) -> bool:
        known = self._covered.get(name)
        if known is None:
            parent = name.rpartition(".")[0]
            known = name in self._packages or (bool(parent) and self._is_in_package(parent))
            self._covered[name] = known
        return known

    def __contains__(self, spec: ModuleSpec) -> bool:
        if self.covers(spec.name):
            return is_pure(spec)
        return self.in_folder(spec) or self._is_users(spec) or self._says_it_keeps_ranks(spec)

    def _says_it_keeps_ranks(self, spec: ModuleSpec) -> bool:
        """Return whether the text of an installed package says so; its modules are covered from then on."""
        if self._folder is None or "." in spec.name or spec.name in _OTHERS or _is_shared(spec.name):
            return False
        places = map(Path, spec.submodule_search_locations or filter(None, (spec.origin,)))
        keeps = is_pure(spec) and any(_is_installed(path.parent) and may_keep_ranks(path) for path in places)
        if keeps:
            self._packages.add(spec.name)
            self._covered.clear()
        return keeps

    def in_folder(self, spec: ModuleSpec) -> bool:
        """Return whether a module lies in the script's folder or below, and is no installed library."""
        paths = _paths_of(spec)
        return bool(paths) and all(map(self._is_script_s, paths))

    def _is_users(self, spec: ModuleSpec) -> bool:
        """Return whether a module lies elsewhere, where nothing is installed."""
        if self._folder is None or _is_shared(spec.name) or not is_pure(spec):
            return False
        depth = spec.name.count(".") + (spec.submodule_search_locations is not None and spec.has_location)
        found_in = [path.parents[min(depth, len(path.parents) - 1)] for path in _paths_of(spec)]
        return bool(found_in) and not any(map(_is_installed, found_in))

    def _is_script_s(self, path: Path) -> bool:
        """Return whether *path* is in the script's folder or below, and in none of libraries there."""
        if self._folder is None or not path.is_relative_to(self._folder):
            return False
        below = path.relative_to(self._folder).parts
        return LIBRARY_FOLDERS.isdisjoint(below) and not any(map(path.is_relative_to, _LIBRARIES))

    def shadowed(self, search_path: Sequence[str]) -> list[str]:
        """Return which packages of ours have a name that the script's folder has as well."""
        return [name for name in OURS if self._is_shadowed(name, search_path)]

    def hidden(self, shadowed: Sequence[str]) -> list[str]:
        """Return which modules that this process has imported already ranks are not to find.

        These are those of packages of which each rank has a copy, and those of ours that are *shadowed*:
        there the script finds its own.
        """
        for name in {
            name.partition(".")[0] for name, module in list(sys.modules.items()) if _uses_torch(module)
        }:
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if spec is not None:
                self._says_it_keeps_ranks(spec)
        covering = {name.partition(".")[0] for name in (*self._packages, *self._builders)}
        return [
            name
            for name, module in list(sys.modules.items())
            if (top := name.partition(".")[0]) in shadowed
            or (top in covering and self.covers(name) and is_pure(getattr(module, "__spec__", None)))
        ]

    def _is_shadowed(self, name: str, search_path: Sequence[str]) -> bool:
        spec = None if self._folder is None else PathFinder.find_spec(name, list(search_path))
        ours = getattr(sys.modules.get(name), "__file__", None)
        if spec is None or not self.in_folder(spec):
            return False
        return ours is None or spec.origin is None or Path(spec.origin).resolve() != Path(ours).resolve()


def _paths_of(spec: ModuleSpec) -> list[Path]:
    """Return the file of a module, or the folders of a package without one."""
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return [Path(place).resolve() for place in places if place]


def _is_shared(name: str) -> bool:
    """Return whether the module *name* is in what ranks themselves stand on."""
    top = name.partition(".")[0]
    return top in _SHARED or top in OURS


@cache
def _is_installed(folder: Path) -> bool:
    """Return whether libraries are installed in *folder*, where Python has found one."""
    if not LIBRARY_FOLDERS.isdisjoint(folder.parts) or any(map(folder.is_relative_to, _LIBRARIES)):
        return True
    return any(folder.glob("*.dist-info"))


def is_pure(spec: Any) -> bool:
    """Return whether a module is written in Python, so that it can be executed again."""
    loader = getattr(spec, "loader", None)
    if isinstance(loader, SourceFileLoader | SourcelessFileLoader):
        return True
    return loader is None or spec.submodule_search_locations is not None  # a package without a file


def _uses_torch(module: Any) -> bool:
    return getattr(module, "__dict__", {}).get("torch") is sys.modules.get("torch", module)


def can_copy(module: ModuleType) -> bool:
    """Return whether each rank could have *module* for itself; what ranks themselves stand on is excluded."""
    return not _is_shared(module.__name__) and is_pure(getattr(module, "__spec__", None))


def _check(name: str, folder: Sequence[str]) -> None:
    """Check that each rank can have a copy of the package *name*.

    Raises:
        NotSupportedError: it cannot.
    """
    top = name.partition(".")[0]
    if _is_shared(name):
        raise NotSupportedError(
            f"own: {name!r} is one for all ranks and cannot be copied; name a package that a script imports "
            "and that keeps what a process has once, such as megatron"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise NotSupportedError(f"own: expected the name of a package, such as megatron; got {name!r}")
    if top not in sys.modules and PathFinder.find_spec(top, [*folder, *sys.path]) is None:
        raise NotSupportedError(f"own: there is no package {name!r}, neither beside the script nor installed")
