"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of *package*.

    The package imports its names for type checkers, and says each of them once::

        if TYPE_CHECKING:
            from collectives.program import Send as Send

        __getattr__, __dir__, __all__ = lazy_names(__name__)

    Where each name is defined is read out of that source.  This is no part of `sim`, which could share
    it: ``import torch`` imports this package, and must not meet whatever else is called ``sim``.
    """
    module_of = {
        alias.asname or alias.name: statement.module
        for block in ast.parse(inspect.getsource(sys.modules[package])).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    names = sorted(module_of)
    return import_name, lambda: names, names
