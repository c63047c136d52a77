"""Obligations in which each product of two symbols is a symbol, with the facts about those that matter.

The solver is quick where everything is linear.  A product is to it some number, and where it finds numbers
for which products are not as they should be, it is told what is true of those: of two multiples of one
number, that of the greater factor is greater, by as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import z3

from collectives.proof.every_size.products import DIVIDED, REMAINDER
from collectives.proof.every_size.terms import once_for_each


@dataclass(frozen=True)
class _Read:
    """A *term* in which products of symbols are symbols, and the products and quotients in it, by name."""

    term: Any
    products: Mapping[str, tuple[tuple[Any, ...], Any]]
    quotients: Mapping[str, tuple[Any, Any]]


class Linear:
    """Claims in which each product of symbols has become a symbol, the same for the same product."""

    def __init__(self) -> None:
        self.products: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self.multiples: dict[Any, dict[Any, Any]] = {}

    def of(self, claims: list[Any]) -> list[Any]:
        """Return *claims* so, and what is true of the quotients in them."""
        read = [_read(z3.BoolVal(claim) if isinstance(claim, bool) else claim) for claim in claims]
        quotients = {name: both for each in read for name, both in each.quotients.items()}
        for value, by in quotients.values():
            rest = REMAINDER(value, by)
            read.append(_read(z3.Implies(by >= 1, z3.And(rest >= 0, rest < by))))
            read.append(_read(value == by * DIVIDED(value, by) + rest))
        for each in read:
            self.products |= each.products
        self.multiples = self._multiples()
        return [each.term for each in read]

    def facts_against(self, valued: Callable[[Any], int]) -> Iterator[Any]:
        """Yield what is true of products, where they are not so for symbols that have these values."""
        for unit, multiples in self.multiples.items():
            size = valued(unit)
            if size < 1:
                continue
            known = [(other, product, valued(other), valued(product)) for other, product in multiples.items()]
            in_order = sorted(known, key=_value)
            for (low, of_low, at_low, there), (high, of_high, at_high, here) in pairwise(in_order):
                apart = at_high - at_low
                if here - there != size * apart:
                    more = min(apart, MOST_APART)
                    if here - there < size * more:
                        ordered = z3.And(unit >= 1, low + more <= high)
                        yield z3.Implies(ordered, of_low + more * unit <= of_high)
                    elif apart <= MOST_APART:
                        close = z3.And(unit >= 1, high <= low + apart)
                        yield z3.Implies(close, of_high <= of_low + apart * unit)

    def _multiples(self) -> dict[Any, dict[Any, Any]]:
        """Return which multiples of each symbol there are: for each factor, the product."""
        found: dict[Any, dict[Any, Any]] = {}
        for factors, multiple in self.products.values():
            for unit, other in (factors, factors[::-1]) if len(factors) == 2 else ():
                if z3.is_const(unit) and not is_fresh(unit):
                    of_few = {z3.IntVal(0): z3.IntVal(0), z3.IntVal(1): unit}
                    found.setdefault(unit, of_few)[other] = multiple
        return found


def is_fresh(symbol: Any) -> bool:
    """Return whether *symbol* is any number that an obligation speaks of, and not one of the program's."""
    return "!" in symbol.decl().name()


MOST_APART = 2
"""Up to how far apart factors are for which products are compared exactly."""


def _value(known: tuple[Any, Any, int, int]) -> int:
    return known[2]


@once_for_each
def _read(term: Any) -> _Read:
    kind = term.decl().kind() if z3.is_app(term) else None
    if kind in _SUMS:
        return _read_sum(term)
    if kind is None or term.num_args() == 0:
        return _Read(term, {}, {})
    return _read_parts(term)


def _read_parts(term: Any) -> _Read:
    parts = list(map(_read, term.children()))
    products = {name: product for part in parts for name, product in part.products.items()}
    quotients = {name: both for part in parts for name, both in part.quotients.items()}
    if not products and not _is_quotient(term):
        return _Read(term, products, quotients)
    changed = term.decl()(*(part.term for part in parts))
    if _is_quotient(term):
        value, by = parts[0].term, parts[1].term
        quotients[f"{value.sexpr()} / {by.sexpr()}"] = value, by
    return _Read(changed, products, quotients)


def _read_sum(term: Any) -> _Read:
    polynomial = _polynomial(term)
    factors = {factor.get_id(): _read(factor) for each in polynomial for factor in each}
    products = {name: product for part in factors.values() for name, product in part.products.items()}
    quotients = {name: both for part in factors.values() for name, both in part.quotients.items()}
    total = z3.IntVal(polynomial.get((), 0))
    for each, number in polynomial.items():
        if not each or not number:
            continue
        parts = sorted((factors[factor.get_id()].term for factor in each), key=z3.ExprRef.sexpr)
        multiple = parts[0]
        if len(parts) > 1:
            name = " * ".join(part.sexpr() for part in parts)
            multiple = z3.Int(name)
            products[name] = tuple(parts), multiple
        total += number * multiple
    return _Read(total, products, quotients)


def _is_quotient(term: Any) -> bool:
    return bool(term.decl().eq(DIVIDED) or term.decl().eq(REMAINDER))


_SUMS = (z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_UMINUS, z3.Z3_OP_MUL)


def _polynomial(term: Any) -> dict[tuple[Any, ...], int]:
    """Return the products in *term*, each with its number."""
    if z3.is_int_value(term):
        return {(): term.as_long()}
    kind = term.decl().kind() if z3.is_app(term) else None
    if kind not in _SUMS:
        return {(term,): 1}
    found, *others = map(_polynomial, term.children())
    if kind == z3.Z3_OP_UMINUS:
        return {factors: -number for factors, number in found.items()}
    for other in others:
        if kind == z3.Z3_OP_MUL:
            parts = [((*a, *b), one * two) for (a, one), (b, two) in product(found.items(), other.items())]
            found = {}
        else:
            sign = -1 if kind == z3.Z3_OP_SUB else 1
            parts = [(factors, sign * number) for factors, number in other.items()]
        for factors, number in parts:
            key = tuple(sorted(factors, key=z3.ExprRef.get_id))
            found[key] = found.get(key, 0) + number
    return found
