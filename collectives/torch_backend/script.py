"""Scripts as Python's command line takes them: a file, or after ``-m`` a module.

A script runs in a ``__main__`` of its own, with its own ``sys.argv`` and its folder in front of
``sys.path``.  Whether that is done once, for a process, or for each rank thread in turn, is up to the caller.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Module:
    """A script that is named as ``python -m`` takes it."""

    name: str

    def __str__(self) -> str:
        return self.name


class Script:
    """A script and its arguments.

    Args:
        script: its path, or its module.
        arguments: without its name.

    Attributes:
        folder: in front of the places where it finds modules: a file's own, a module's current one.
        argv: its name and its arguments.
        text: of a file; None for a module, which is found when it runs.

    Raises:
        OSError: the file cannot be read.
        ModuleNotFoundError: there is no such module.
        SyntaxError: the file is no Python.
    """

    def __init__(self, script: Path | Module, arguments: Sequence[str]) -> None:
        self.argv = [str(script), *arguments]
        self.text: str | None = None
        self._script = script
        if isinstance(script, Module):
            self.folder = Path.cwd()
            top = script.name.partition(".")[0]
            if PathFinder.find_spec(top, self.search_path()) is None:
                raise ModuleNotFoundError(f"there is no module {top!r}, neither here nor installed", name=top)
        else:
            self.folder = script.resolve().parent
            source = script.read_bytes()
            self.text = source.decode(errors="replace")
            self._code = compile(source, str(script), "exec", dont_inherit=True)

    def search_path(self) -> list[str]:
        """Return what ``sys.path`` is to the script."""
        return [str(self.folder), *sys.path]

    @contextmanager
    def as_main(self) -> Iterator[ModuleType]:
        """Yield the ``__main__`` of this process, which is the script's while the body runs."""
        main = ModuleType("__main__")
        before = sys.modules["__main__"], sys.argv, sys.path
        sys.modules["__main__"], sys.argv, sys.path = main, list(self.argv), self.search_path()
        try:
            yield main
        finally:
            sys.modules["__main__"], sys.argv, sys.path = before

    def run(self, main: ModuleType, on_text: Callable[[str | None], None] | None = None) -> dict[str, Any]:
        """Run the script as *main*, which is in place, and return the globals that it leaves.

        Args:
            main: the module ``__main__``.
            on_text: called with the text of a module before it runs, None where it is not known.

        Raises:
            ModuleNotFoundError: the module, or what ``python -m`` runs of it, does not exist.
            SystemExit: the script ended with another exit code than 0.
        """
        variables = main.__dict__
        variables["__builtins__"] = builtins
        if isinstance(self._script, Module):
            spec = _main_of(self._script.name)
            code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
            if on_text is not None:
                on_text(text_of(spec))
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


def text_of(spec: ModuleSpec) -> str | None:
    """Return the text of a module; None where it is not known."""
    source: Callable[[str], str | None] | None = getattr(spec.loader, "get_source", None)
    return None if source is None else source(spec.name)


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
