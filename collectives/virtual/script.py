"""A script, run once for each rank thread as if each were a process started with ``python script.py``."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.virtual.isolation import per_rank
from collectives.virtual.isolation.own_modules import OwnModules, text_of
from sim.cluster import RankContext


@dataclass(frozen=True)
class Module:
    """A script that is named as ``python -m`` takes it."""

    name: str


class Script:
    """A script with a ``__main__`` and modules of its own for each rank.

    Args:
        script: its path, or its module.
        argv: its arguments, without its name.
        num_ranks: number of ranks.
        on_text: called with the text of the script, and of each module of its own, before it runs; None where
            there is none.

    Raises:
        OSError: the script cannot be read.
        ModuleNotFoundError: there is no such module.
        SyntaxError: it is no Python.
    """

    def __init__(
        self,
        script: Path | Module,
        argv: Sequence[str],
        num_ranks: int,
        on_text: Callable[[str | None], None],
    ) -> None:
        self._script = script
        self._argv = [str(script), *argv]
        self._on_text = on_text
        self._mains = [ModuleType("__main__") for _ in range(num_ranks)]
        if isinstance(script, Module):
            self._folder = Path.cwd()
            top = script.name.partition(".")[0]
            if PathFinder.find_spec(top, [str(self._folder), *sys.path]) is None:
                raise ModuleNotFoundError(f"there is no module {top!r}, neither here nor installed", name=top)
        else:
            self._folder = script.resolve().parent
            text = script.read_bytes()
            self._code = compile(text, str(script), "exec")
            on_text(text.decode(errors="replace"))
        self._own_modules = OwnModules(self._folder, num_ranks, on_text)

    def contexts(self) -> list[RankContext]:
        """Return what makes each rank's ``__main__``, ``sys.argv`` and own modules its own."""
        search_path = [str(self._folder), *sys.path]
        num_ranks = len(self._mains)
        return [
            per_rank.item(num_ranks, sys.modules, "__main__", lambda rank: self._mains[rank]),
            per_rank.attribute(num_ranks, sys, "argv", lambda rank: list(self._argv)),
            per_rank.attribute(num_ranks, sys, "path", lambda rank: list(search_path)),
            self._own_modules,
        ]

    def found(self) -> AbstractContextManager[None]:
        """Return a context in which the script's own modules are found."""
        return self._own_modules.found()

    def run(self, rank: int) -> dict[str, Any]:
        """Run the script as *rank* and return the globals that it leaves."""
        variables = self._mains[rank].__dict__
        variables["__builtins__"] = builtins
        if isinstance(self._script, Module):
            spec = _main_of(self._script.name)
            code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
            if rank == 0:
                self._on_text(text_of(spec))
            sys.argv[0] = str(spec.origin)
            variables.update(
                __file__=spec.origin, __spec__=spec, __package__=spec.parent, __loader__=spec.loader
            )
        else:
            code = self._code
            variables["__file__"] = str(self._script)
        try:
            exec(code, variables)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        return variables


def _main_of(name: str) -> ModuleSpec:
    """Return what ``python -m name`` runs; imports the packages that it is in.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ModuleNotFoundError(f"No module named {name!r}, or none that can be run", name=name)
    return spec
