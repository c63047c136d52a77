"""Ownership of modules: which ones each rank imports for itself, as a process of its own would.

- Those in the folder of a script or below, outside of the places where libraries are installed.
- Packages that keep what a process has once, such as its rank, in their globals.  `KEPT_APART` names the
  known ones; a run can be told of others.
- Modules that build on one of these: whose classes derive from one of its classes, for example
  (`collectives.virtual.isolation.borrowed`).

All others are shared between ranks, as are modules that are not written in Python.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.errors import NotSupportedError

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
"""Packages and modules of which each rank has a copy of its own, where a script imports them."""

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

    Raises:
        NotSupportedError: there is no such package, or it cannot be copied.
    """

    def __init__(self, folder: Path | None, packages: Iterable[str] = ()) -> None:
        self._folder = None if folder is None else folder.resolve()
        asked = tuple(packages)
        for name in asked:
            _check(name, () if folder is None else (str(folder),))
        self._packages = {*KEPT_APART, *asked}
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
        return self.in_folder(spec)

    def in_folder(self, spec: ModuleSpec) -> bool:
        """Return whether a module lies in the script's folder or below, and is no installed library."""
        places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
        paths = [Path(place).resolve() for place in places if place]
        return bool(paths) and all(map(self._is_script_s, paths))

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


def is_pure(spec: Any) -> bool:
    """Return whether a module is written in Python, so that it can be executed again."""
    loader = getattr(spec, "loader", None)
    if isinstance(loader, SourceFileLoader | SourcelessFileLoader):
        return True
    return loader is None or spec.submodule_search_locations is not None  # a package without a file


def can_copy(module: ModuleType) -> bool:
    """Return whether each rank could have *module* for itself; what ranks themselves stand on is excluded."""
    top = module.__name__.partition(".")[0]
    return top not in OURS and top not in _SHARED and is_pure(getattr(module, "__spec__", None))


def _check(name: str, folder: Sequence[str]) -> None:
    """Check that each rank can have a copy of the package *name*.

    Raises:
        NotSupportedError: it cannot.
    """
    top = name.partition(".")[0]
    if top in _SHARED or top in OURS:
        raise NotSupportedError(
            f"own: {name!r} is one for all ranks and cannot be copied; name a package that a script imports "
            "and that keeps what a process has once, such as megatron"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise NotSupportedError(f"own: expected the name of a package, such as megatron; got {name!r}")
    if top not in sys.modules and PathFinder.find_spec(top, [*folder, *sys.path]) is None:
        raise NotSupportedError(f"own: there is no package {name!r}, neither beside the script nor installed")
