"""Docstrings, of which commands make what they say, also where ``python -OO`` has left them out."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_of(thing: Any) -> str | None:
    """Return the docstring of a function or a module without its indentation, None if it has none."""
    if sys.flags.optimize > 1:  # where a dataclass says its signature instead
        with suppress(OSError, TypeError, KeyError, SyntaxError):
            module = thing if isinstance(thing, ModuleType) else sys.modules[thing.__module__]
            path = [] if thing is module else thing.__qualname__.split(".")
            if (text := _from_source(inspect.getsource(module), *path)) is not None:
                return text
    return inspect.getdoc(thing)


def entries_of(docstring: str, section: str) -> dict[str, str]:
    """Return the text of each name in a *section* of a docstring, such as ``Args``; none without it."""
    found = re.search(rf"^{section}:\n((?: +.*\n?)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", found[1] if found else "", re.MULTILINE)
    return {name: " ".join(map(str.strip, text.splitlines())) for name, text in entries}


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
