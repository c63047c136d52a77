"""Functions with one slip in their source, as a hand makes it: another constant, sign, bound or kind."""

from __future__ import annotations  # which `compile` takes over: sources of packages are read so

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from textwrap import dedent
from typing import Any

_SWAPPED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_OTHER_KIND = {"Recv": "RecvReduce", "RecvReduce": "Recv", "Copy": "Reduce", "Reduce": "Copy"}
_NUMBER = count()


def slips(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield *function* with each slip in its source: what it says now, and the function."""
    tree = ast.parse(dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.returns = None
    for number, node in enumerate(ast.walk(tree)):
        for slip in _slips(node):
            changed = deepcopy(tree)
            target = next(copy for n, copy in enumerate(ast.walk(changed)) if n == number)
            slip(target)
            yield ast.unparse(target), _made(function, changed)


def _slips(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for change in (-1, 1):
            yield lambda target, change=change: setattr(target, "value", target.value + change)
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED:
        yield lambda target: setattr(target, "op", _SWAPPED[type(target.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
        yield lambda target: setattr(target, "ops", [_SWAPPED[type(target.ops[0])]()])
    if isinstance(node, ast.Name) and node.id in _OTHER_KIND:
        yield lambda target: setattr(target, "id", _OTHER_KIND[target.id])
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield lambda target: target.elts.pop()
    if isinstance(node, ast.Name) and node.id == "rank" and isinstance(node.ctx, ast.Load):
        yield lambda target: setattr(target, "id", "world_size")


def _made(function: Callable[..., Any], tree: ast.Module) -> Callable[..., Any]:
    """Return *function* as *tree* defines it, whose source can be read again."""
    source = ast.unparse(ast.fix_missing_locations(tree))
    path = f"<mutant {next(_NUMBER)}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    names = dict(vars(inspect.getmodule(function)))
    exec(compile(source, path, "exec"), names)
    return names[function.__name__]
