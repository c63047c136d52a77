"""Packages of ours whose name the script's folder has as well: the script finds its own, and we find ours."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import collectives
from collectives.virtual.isolation.ownership import OURS
from collectives.virtual.isolation.patching import replaced

_FOLDER = str(Path(collectives.__file__).resolve().parents[1])


class ShadowedPackages:
    """Modules of ours that rank threads do not find, but for our own code.

    Args:
        names: of the modules; all that are imported of their packages.

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
