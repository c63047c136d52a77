"""Conditions on the rank that none of the ranks that were run has met as others would: found by reading.

One thread speaks for all ranks of a class, so what a script does under ``if rank == 37`` is not done where 37
is none of those that ran.  The conditions of the user's files are worked out for every rank, as far as they
depend on its number alone: on names bound once to ``get_rank()`` and its kin or to RANK, LOCAL_RANK and the
like of the environment, on what is calculated of these, and on parameters called ``rank`` and the like.
Whatever else a condition has in it may be true or false.  Whether a line is reached is not asked.
"""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from collectives.virtual.diagnosis.places import is_users
from collectives.virtual.folding.classes import RankClass

NOT_RUN = "no rank that was run does what these conditions let others do, so it is not in the result"
MOST = 5
"""Conditions that are named."""

_MAX_CODE = 60
_MAX_BYTES = 1 << 20
_CALLS = {
    "get_rank": "rank",
    "get_world_size": "world",
    "device_count": "on node",
    "get_node_local_rank": "local",
}
_ENVIRONMENT = {
    "RANK": "rank",
    "LOCAL_RANK": "local",
    "WORLD_SIZE": "world",
    "LOCAL_WORLD_SIZE": "on node",
    "GROUP_RANK": "node",
}
_PARAMETERS = {"rank": "rank", "global_rank": "rank", "local_rank": "local", "world_size": "world"}
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
}
_COMPARED: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

Numbers: TypeAlias = Any
"""Of each rank an integer, as an array; or one integer, the same of all."""


def users_files(fn_or_script: object) -> tuple[Path, ...]:
    """Return the files of the user's code, on a rank's thread, whose modules are in place.

    Args:
        fn_or_script: what ranks run: of a function its own file counts, of a script its folder and below.
    """
    if callable(fn_or_script):
        code = getattr(inspect.unwrap(fn_or_script), "__code__", None)
        return () if code is None else (Path(code.co_filename),)
    modules = list(sys.modules.items())
    files = [(name, getattr(module, "__file__", None)) for name, module in modules]
    own = {name: Path(file).resolve() for name, file in files if isinstance(file, str) and is_users(file)}
    main = own.get("__main__")
    return (
        () if main is None else tuple(file for file in own.values() if main.parent in (file, *file.parents))
    )


def unmet(
    paths: Iterable[Path], classes: Iterable[RankClass], num_ranks: int, ranks_per_node: int
) -> Iterator[str]:
    """Yield conditions that some rank may meet, or not, as no rank does that was compared with it."""
    ranks = np.arange(num_ranks)
    facts: dict[str, Numbers] = {
        "rank": ranks,
        "local": ranks % ranks_per_node,
        "node": ranks // ranks_per_node,
        "world": num_ranks,
        "on node": min(ranks_per_node, num_ranks),
    }
    for path in paths:
        try:
            tree = ast.parse(path.read_bytes()[:_MAX_BYTES])
        except (OSError, SyntaxError, ValueError):
            continue
        file = _File(tree, facts)
        for test in sorted(_tests(tree), key=lambda test: test.lineno):
            outcomes = np.broadcast_to(file.outcomes(test), num_ranks)
            unlike = [rank for own in classes for rank in _unlike(own, outcomes)]
            if unlike:
                others = f" and {len(unlike) - 1} more" if len(unlike) > 1 else ""
                code = ast.unparse(test)
                code = code if len(code) <= _MAX_CODE else f"{code[:_MAX_CODE]}…"
                yield f"{path.name}:{test.lineno} {code} (rank {unlike[0]}{others})"


def _unlike(own: RankClass, outcomes: np.ndarray) -> list[int]:
    """Return those of a class whose outcome none has that was compared."""
    met = set(outcomes[list(own.compared)].tolist())
    return [
        rank for rank, outcome in zip(own.ranks, outcomes[list(own.ranks)], strict=True) if outcome not in met
    ]


def _tests(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


class _File:
    """What is known of the names of one file, whatever the scope."""

    def __init__(self, tree: ast.AST, facts: Mapping[str, Numbers]) -> None:
        self._facts = facts
        self._bound: dict[str, ast.expr | str | None] = {}
        known: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                self._bind(node.arg, _PARAMETERS.get(node.arg))
            for target, value in _assigned(node):
                known.add(id(target))
                self._bind(target.id, _fact(value) or value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in known:
                self._bound[node.id] = None

    def _bind(self, name: str, value: ast.expr | str | None) -> None:
        """Note what *name* is; nothing is known of one that is bound to two things."""
        before = self._bound.setdefault(name, value)
        self._bound[name] = value if before == value else None

    def outcomes(self, test: ast.expr) -> Numbers:
        """Return of each rank what *test* may be: bit 1 for true, bit 2 for false."""
        match test:
            case ast.BoolOp(op=ast.And()):
                both = [self.outcomes(value) for value in test.values]
                return _all(both, 1) | _any(both, 2)
            case ast.BoolOp():
                both = [self.outcomes(value) for value in test.values]
                return _any(both, 1) | _all(both, 2)
            case ast.UnaryOp(op=ast.Not()):
                inner = self.outcomes(test.operand)
                return (inner & 1) << 1 | (inner & 2) >> 1
        numbers = self._numbers(test)
        return 3 if numbers is None else np.where(np.asarray(numbers).astype(bool), 1, 2)

    def _numbers(self, value: ast.expr | str | None, depth: int = 0) -> Numbers | None:
        """Return what *value* is on each rank; None if that is not known."""
        if depth > 20 or value is None:
            return None
        if isinstance(value, str):
            return self._facts[value]
        fact = _fact(value)
        if fact is not None:
            return self._facts[fact]
        inner = depth + 1
        match value:
            case ast.Constant(value=bool() | int() as number):
                return number if abs(number) < 1 << 31 else None
            case ast.Constant(value=str() as text) if text.isdecimal() and len(text) < 9:
                return int(text)
            case ast.Name(id=name):
                return self._numbers(self._bound.get(name), inner)
            case ast.Call(func=ast.Name(id="int" | "str" | "bool"), args=[argument], keywords=[]):
                return self._numbers(argument, inner)
            case ast.BinOp():
                both = [self._numbers(value.left, inner), self._numbers(value.right, inner)]
                return _applied(_BINARY.get(type(value.op)), both)
            case ast.Compare(ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set() as listed]):
                all_of_it = [self._numbers(element, inner) for element in (value.left, *listed.elts)]
                return _applied(_is_one_of, all_of_it)
            case ast.Compare(ops=[op], comparators=[right]):
                both = [self._numbers(value.left, inner), self._numbers(right, inner)]
                return _applied(_COMPARED.get(type(op)), both)
        return None


def _applied(function: Callable[..., Any] | None, numbers: list[Numbers | None]) -> Numbers | None:
    if function is None or any(number is None for number in numbers):
        return None
    with np.errstate(all="ignore"):
        try:
            return function(*numbers)
        except (ArithmeticError, TypeError, ValueError):
            return None


def _is_one_of(number: Numbers, *others: Numbers) -> Numbers:
    return sum((number == other) * 1 for other in others) > 0


def _all(outcomes: list[Numbers], bit: int) -> Numbers:
    """Return *bit* where all have it."""
    return np.bitwise_and.reduce(np.broadcast_arrays(*outcomes)) & bit


def _any(outcomes: list[Numbers], bit: int) -> Numbers:
    return np.bitwise_or.reduce(np.broadcast_arrays(*outcomes)) & bit


def _assigned(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield names to which *node* assigns, and what."""
    match node:
        case ast.Assign(targets=[ast.Name() as target], value=value):
            yield target, value
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
            yield target, value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            for each, value in zip(targets, values, strict=False):
                if isinstance(each, ast.Name):
                    yield each, value


def _fact(value: ast.expr) -> str | None:
    """Return which number of a rank *value* asks for; None: none, or another."""
    match value:
        case ast.Call(func=ast.Name(id="int" | "str"), args=[inner]):
            return _fact(inner)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[], keywords=[]):
            return _CALLS.get(name)
        case ast.Call(func=function, args=[ast.Constant(value=str() as name), *_]):
            return (
                _ENVIRONMENT.get(name) if ast.unparse(function).endswith(("environ.get", "getenv")) else None
            )
        case ast.Subscript(value=mapping, slice=ast.Constant(value=str() as name)):
            return _ENVIRONMENT.get(name) if ast.unparse(mapping).endswith("environ") else None
    return None
