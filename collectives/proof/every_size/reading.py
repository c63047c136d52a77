"""A program run on a symbolic rank, step and number of ranks: its rows, each for all ranks.

The generator itself runs, with ``range``, ``min`` and the like replaced by ones that know symbols.  A
symbolic range gives two values, each standing for any of the range: what the second makes of the body
must be what the first made of it, and the source of the body may carry nothing on to the next iteration
(`loop_source`).  What was read is then compared with the program's own steps (`comparison`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import z3

from collectives.algorithms.double_binary_tree import position_above, position_in_second, two_trees
from collectives.algorithms.shared.doubling import doublings, halvings, num_doublings, powers_in
from collectives.algorithms.shared.embedding import each_between
from collectives.program import Algorithm, Local
from collectives.program.program import as_step
from collectives.proof.every_size.bit_sums import BIT_SUM, LEVEL, TWIN, BitSum
from collectives.proof.every_size.comparison import sums_over_powers
from collectives.proof.every_size.functions import Numpy, Ratio, common_multiple, maximum, whole
from collectives.proof.every_size.loop_source import check_loops
from collectives.proof.every_size.loops import Doublings, Halvings, Loop, Multiples, Strides
from collectives.proof.every_size.powers import FLOOR, NUM_RANKS, POWER, ROOT, level_of
from collectives.proof.every_size.rows import Family, Row, same_but_for
from collectives.proof.every_size.sums import Sum, sum_over
from collectives.proof.every_size.symbols import (
    Assumptions,
    NotProvedError,
    Number,
    minimum,
    symbols_of,
    term,
)
from collectives.proof.every_size.terms import terms_in
from collectives.proof.every_size.tree_lemmas import prove_trees
from collectives.proof.every_size.trees import TREES, known_of_both, symbolic_trees, tables

MOST_ROWS = 1000
"""Rows that are read of a program; loops over symbols count once."""


@dataclass
class Reader:
    """What is read, and the symbols in it.

    Attributes:
        case: what holds of the number of ranks, beside that it is 2 or more.
        knowledge: what holds of the trees that a program takes; *known_of_both* tells who works in both.
    """

    case: list[Any] = field(default_factory=list)
    num_ranks: Any = NUM_RANKS
    rank: Any = field(default_factory=lambda: z3.Int("r"))
    rows: list[Row] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    open: list[tuple[Loop, bool]] = field(default_factory=list)
    assumptions: Assumptions = field(init=False)
    knowledge: list[Any] = field(default_factory=list)
    known_of_both: list[Any] = field(default_factory=list)
    functions: Callable[[int], Mapping[str, Callable[[int], int]]] = lambda num_ranks: {}
    bit_sum: BitSum | None = None
    sums: list[Sum] = field(default_factory=list)
    _powers_of: Any = None
    _looping: list[bool] = field(default_factory=list)
    _copies: dict[int, Any] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.case = [self.num_ranks >= 2, *self.case]
        self.case += [ROOT >= 0, self.num_ranks > ROOT]
        self.assumptions = Assumptions(*self.case, self.rank >= 0, self.rank < self.num_ranks)

    def number(self, value: Any) -> Number:
        """Return *value*, a term, as a program sees it."""
        return Number(value, self.num_ranks, self.assumptions)

    def range(self, *bounds: Any) -> Any:
        """Return a range, as the built-in does; where a bound is a symbol, a symbolic one."""
        if not any(isinstance(bound, Number) for bound in bounds):
            return range(*bounds)
        start, stop, *strides = bounds if len(bounds) > 1 else (0, *bounds)
        if strides:
            return self._strides(term(start), term(stop), strides[0])
        length = z3.simplify(term(stop) - term(start))
        if z3.is_int_value(length):
            return [start + number for number in range(length.as_long())]
        return self._both(Loop(*self._variables(), term(start), term(stop)))

    def _strides(self, start: Any, stop: Any, stride: Any) -> Iterator[Number]:
        level = level_of(stride.term) if isinstance(stride, Number) else None
        if level is not None and z3.eq(start, z3.IntVal(0)) and self.assumptions.imply(level >= 0):
            return self._both(Multiples(*self._variables(), start, stop, level))
        if not (isinstance(stride, int) and stride > 0):
            raise NotProvedError("it has a range whose stride is neither a number above 0 nor a power of two")
        return self._both(Strides(*self._variables(), start, stop, stride))

    def doublings(self, stop: Any) -> Any:
        """Return the distances that double, as the function of this name does."""
        if not isinstance(stop, Number):
            return doublings(stop)
        return self._both(Doublings(*self._variables(), *self._levels(stop)))

    def halvings(self, stop: Any) -> Any:
        """Return the distances that halve, as the function of this name does."""
        if not isinstance(stop, Number):
            return halvings(stop)
        return self._both(Halvings(*self._variables(), *self._levels(stop)))

    def sum(self, numbers: Iterable[Any]) -> Any:
        """Return a sum, as the built-in does; over a symbolic range, a symbol."""
        loops = len(self.loops)
        terms = list(numbers)
        if self._powers_of is not None:
            return self._sum_over_powers(terms)
        if len(self.loops) == loops:
            return sum(terms)
        found = sum_over(self.loops[loops:], terms, z3.Int(f"sum{len(self.sums)}"))
        self.sums += [found] if found else []
        return self.number(found.symbol if found else z3.FreshInt("sum"))

    def powers_in(self, number: Any) -> Iterator[Any]:
        """Yield the powers of two in a number, as the function of this name does; a sum over them is read."""
        if not isinstance(number, Number):
            yield from powers_in(number)
            return
        for level in (LEVEL, TWIN):
            self.assumptions.facts.append(level >= 0)
            yield self.number(POWER(level))
            self.assumptions.facts.pop()
        self._powers_of = number

    def _sum_over_powers(self, terms: list[Any]) -> Number:
        number, self._powers_of = self._powers_of, None
        one, twin = map(term, terms)
        if not z3.eq(z3.simplify(z3.substitute(one, (LEVEL, TWIN))), z3.simplify(twin)):
            raise NotProvedError("it has a sum over powers of two that is not read")
        names = {str(part) for part in terms_in(one) if z3.is_const(part) and not z3.is_int_value(part)}
        if not names <= {str(symbol) for symbol in (LEVEL, NUM_RANKS, FLOOR)}:
            raise NotProvedError("it has a sum over powers of two that depends on more than their levels")
        self.bit_sum = self.bit_sum or BitSum(one)
        if not z3.eq(z3.simplify(self.bit_sum.term), z3.simplify(one)):
            raise NotProvedError("it has more than one sum over powers of two")
        self.functions = partial(sums_over_powers, one)
        return self.number(BIT_SUM(number.term))

    def two_trees(self, num_ranks: Any, root: Any = None) -> Any:
        """Return two binary trees, as the function of this name does."""
        if not isinstance(num_ranks, Number):
            return two_trees(num_ranks, root)
        _prove_trees()
        levels = (num_ranks if root is None else num_ranks - 1).bit_length().term
        for tree in TREES:
            self.knowledge += tree.knowledge(num_ranks.term, levels - (root is None))
            self.knowledge += [] if root is None else [tree.head == term(root)]
        self.known_of_both = known_of_both(num_ranks.term, None if root is None else term(root))
        self.functions = partial(tables, rooted=root is not None)
        return symbolic_trees()

    @staticmethod
    def _levels(stop: Any) -> tuple[Any, Any]:
        return z3.IntVal(0), term(num_doublings(stop))

    def each_between(self, start: Any, stop: Any) -> Iterator[tuple[Any, bool]]:
        """Yield each number of a range and that this rank has it, as the function of this name does."""
        return ((number, True) for number in self.range(start, stop))

    def _variables(self) -> tuple[Any, Any]:
        name = next(self._names)
        return z3.Int(f"i{name}"), z3.Int(f"twin{name}")

    def _both(self, loop: Loop) -> Iterator[Number]:
        if self._looping:
            self._looping[-1] = True
        self.loops.append(loop)
        for variable, twin in ((loop.variable, False), (loop.twin, True)):
            self.assumptions.facts.append(loop.holds(variable))
            self.open.append((loop, twin))
            yield self.number(loop.seen(variable))
            self.open.pop()
            self.assumptions.facts.pop()

    def copy(self, value: Any) -> Any:
        """Return *value*, a function or algorithm, as one whose module has functions that know symbols."""
        if isinstance(value, Algorithm):
            return replace(value, program=self.copy(value.program))
        if not isinstance(value, FunctionType):
            return value
        if id(value) in self._copies:
            return self._copies[id(value)]
        names: dict[str, Any] = dict(value.__globals__)
        copied = FunctionType(value.__code__, names, value.__name__, value.__defaults__, value.__closure__)
        copied.__kwdefaults__ = value.__kwdefaults__

        def checked(*arguments: Any, **named: Any) -> Any:
            if inspect.isgeneratorfunction(value):
                check_loops(value)
                return copied(*arguments, **named)
            self._looping.append(False)
            try:
                return copied(*arguments, **named)
            finally:
                if self._looping.pop():
                    check_loops(value)

        self._copies[id(value)] = checked
        known = (doublings, halvings, powers_in, each_between)
        replaced: dict[Any, Any] = {function: getattr(self, function.__name__) for function in known}
        for name in _names_in(value.__code__):
            found = names.get(name)
            if isinstance(found, FunctionType) and found in replaced:
                names[name] = replaced[found]
            elif isinstance(found, Algorithm) or (
                isinstance(found, FunctionType) and _house_of(found) == _house_of(value)
            ):
                names[name] = self.copy(found)
        names |= {
            "range": self.range,
            "min": minimum,
            "max": maximum,
            "int": whole,
            "sum": self.sum,
            "Fraction": Ratio,
            "np": Numpy,
            "math": SimpleNamespace(lcm=common_multiple),
            "two_trees": self.two_trees,
        }
        return checked

    def read(self, algorithm: Algorithm, **given: Any) -> None:
        """Read all rows of *algorithm*, with the parameters *given* in place of its own.

        Raises:
            NotProvedError: it says something that is not read.
        """
        program = self.copy(algorithm.program)
        rank, num_ranks = self.number(self.rank), self.number(self.num_ranks)
        parameters = {**algorithm.parameters, **given}
        if "root" in inspect.signature(algorithm.program).parameters:
            parameters["root"] = self.number(ROOT)
        pending: list[Row] = []
        for step in program(rank, num_ranks, **parameters):
            if len(self.rows) > MOST_ROWS:
                raise NotProvedError(f"it has more than {MOST_ROWS} steps outside of loops")
            families = self._families(as_step(step))
            if not self.open:
                self.rows.append(Row(families, None))
                continue
            if len(self.open) > 1:
                raise NotProvedError("it yields steps in a loop inside a loop")
            ((loop, twin),) = self.open
            if not twin:
                pending.append(Row(families, loop))
                continue
            first = pending.pop(0)
            if not same_but_for(first.families, families, loop):
                raise NotProvedError("an iteration of a loop knows of the one before")
            self.rows.append(first)
        if pending:
            raise NotProvedError("an iteration of a loop yields fewer steps than the one before")
        if any(isinstance(row.loop, Multiples) for row in self.rows):
            raise NotProvedError("it yields steps in a range whose stride is a symbol")

    def _families(self, step: Any) -> tuple[Family, ...]:
        steady = {id(loop) for loop, _ in self.open}
        kept: list[Family] = []
        twins: list[Family] = []
        for operation in step:
            first = operation.source if isinstance(operation, Local) else operation.peer
            parts = map(term, (first, operation.chunk, operation.num_chunks, operation.when))
            first, chunk, length, when = parts
            used = set().union(*map(symbols_of, (first, chunk, length, when)))
            inner = [loop for loop in self.loops if id(loop) not in steady]
            variables = tuple(loop for loop in inner if loop.variable.get_id() in used)
            twin = any(loop.twin.get_id() in used for loop in inner)
            family = Family(type(operation), first, chunk, length, when, variables)
            (twins if twin else kept).append(family)
        over = [family for family in kept if family.variables]
        if len(over) != len(twins) or any(len(family.variables) > 1 for family in over):
            raise NotProvedError("a step is made by a loop that is not read")
        for one, other in zip(over, twins, strict=True):
            if not same_but_for((one,), (other,), one.variables[0]):
                raise NotProvedError("an iteration of a loop knows of the one before")
        return tuple(kept)


@cache
def _prove_trees() -> None:
    """Prove, once in a process, what the rule by which `two_trees` goes makes."""
    prove_trees(Reader().copy(position_above), Reader().copy(position_in_second))


def _names_in(code: CodeType) -> set[str]:
    """Return the names in *code*, and in the code within it, such as comprehensions."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names}.union(*map(_names_in, inner))


def _house_of(function: FunctionType) -> str:
    """Return to which code *function* belongs: what ships is of one house."""
    shipped = "collectives.algorithms"
    return shipped if function.__module__.startswith(shipped) else function.__module__
