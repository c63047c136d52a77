"""Docstrings, of which commands make what they say, also where ``python -OO`` has left them out."""

from __future__ import annotations

import ast
import inspect
import sys
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_of(thing: Any) -> str | None:
    """Return the docstring of a function or a module without its indentation, None if it has none."""
    text = inspect.getdoc(thing)
    if text is None and sys.flags.optimize > 1:
        with suppress(OSError, TypeError, KeyError, SyntaxError):
            module = thing if isinstance(thing, ModuleType) else sys.modules[thing.__module__]
            path = [] if thing is module else thing.__qualname__.split(".")
            text = _from_source(inspect.getsource(module), *path)
    return text


@cache
def _from_source(source: str, *path: str) -> str | None:
    """Return the docstring of what is at *path* among the definitions of a module."""
    node: _Documented = ast.parse(source)
    for name in path:
        found = (
            inner
            for inner in node.body
            if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == name
        )
        inside = next(found, None)
        if inside is None:
            return None
        node = inside
    return ast.get_docstring(node)
