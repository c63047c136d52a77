"""Loops of a program, looked at in its source: an iteration may not know of the one before.

A symbolic range goes through the body of a loop for any one value, which is the whole loop only if nothing
but the variable changes from one iteration to the next, other than a list that grows.
"""

from __future__ import annotations

import ast
import inspect
from collections import deque
from collections.abc import Callable, Generator, Iterator
from textwrap import dedent
from types import MappingProxyType
from typing import Any

from collectives.proof.every_size.symbols import NotProvedError

_CHANGING = {
    name
    for kind in (list, dict, set, deque, Iterator, Generator)
    for name in dir(kind)
    if name not in (*dir(tuple), *dir(frozenset), *dir(MappingProxyType), "append")
}
"""Methods by which a container or an iterator changes; a list may grow."""


def check_loops(function: Callable[..., Any]) -> None:
    """Check all loops in the source of *function*.

    Raises:
        NotProvedError: a loop carries something on, or the source is not known.
    """
    try:
        tree = ast.parse(dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        raise NotProvedError(f"the source of {function.__name__} cannot be read") from error
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While):
            raise NotProvedError("it has a while loop")
        if isinstance(loop, ast.For):
            _check(loop)


def _check(loop: ast.For) -> tuple[set[str], set[str]]:
    """Check one loop, and return which names its body uses before it assigns them, and which it assigns."""
    assigned: set[str] = set()  # for certain, before what follows
    stored: set[str] = set()  # perhaps, as in an inner loop
    used: set[str] = set()
    for statement in loop.body:
        for node in ast.walk(statement):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in _CHANGING:
                raise NotProvedError(f"a loop calls {ast.unparse(called)}, which changes something")
            if isinstance(node, ast.NamedExpr | ast.Global | ast.Nonlocal | ast.Break | ast.Continue):
                raise NotProvedError(f"a loop has a {type(node).__name__.lower()}")
            grows = isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Tuple | ast.List)
            if isinstance(node, ast.AugAssign) and not grows:
                raise NotProvedError(f"a loop carries {ast.unparse(node.target)} on to its next iteration")
        loaded, changed = _names(statement)
        used |= loaded - assigned
        stored |= changed
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            made = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            targets = [name for target in made for name in ast.walk(target)]
            assigned |= {name.id for name in targets if isinstance(name, ast.Name)}
            if any(isinstance(target, ast.Subscript | ast.Attribute) for target in targets):
                raise NotProvedError("a loop changes a part of something")
    if carried := sorted(used & stored):
        raise NotProvedError(f"a loop carries {carried[0]} on to its next iteration")
    return used, stored


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return which names *statement* uses, before it assigns them, and which it assigns."""
    if isinstance(statement, ast.For) and not statement.orelse:
        bound = _bound_within(statement)
        used, stored = _check(statement)
        iterated = {name.id for name in ast.walk(statement.iter) if isinstance(name, ast.Name)}
        return (used | iterated) - bound, stored - bound
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    inner = _bound_within(statement)
    used = {name.id for name in names if isinstance(name.ctx, ast.Load)} - inner
    return used, {name.id for name in names if isinstance(name.ctx, ast.Store)} - inner


def _bound_within(statement: ast.stmt) -> set[str]:
    """Return the variables of inner loops and comprehensions, which are assigned before they are used."""
    targets = [node.target for node in ast.walk(statement) if isinstance(node, ast.For | ast.comprehension)]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
