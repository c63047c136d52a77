"""Terms of the solver: what occurs in them, worked out once for each.

A term is known by its identity, which it keeps for as long as somebody has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

import z3

Found = TypeVar("Found")

MOST_KNOWN = 100_000
"""Terms that are kept with what was worked out for them."""


def once_for_each(function: Callable[..., Found]) -> Callable[..., Found]:
    """Return *function*, of terms, as one that keeps what it has returned for each."""
    known: dict[tuple[int, ...], tuple[Any, Found]] = {}

    @wraps(function)
    def of(*terms: Any) -> Found:
        identity = tuple([term.get_id() for term in terms])
        found = known.get(identity)
        if found is None:
            if len(known) > MOST_KNOWN:
                known.clear()
            found = known[identity] = terms, function(*terms)
        return found[1]

    return of


simplified = once_for_each(z3.simplify)
"""A term, simplified."""


def terms_in(claim: Any) -> Iterator[Any]:
    """Yield each term in *claim* once."""
    seen, waiting = set(), [claim]
    while waiting:
        term = waiting.pop()
        if z3.is_app(term) and term.get_id() not in seen:
            seen.add(term.get_id())
            waiting += term.children()
            yield term


def different(terms: list[Any]) -> list[Any]:
    """Return those of *terms* that are different when they are simplified, as they are, in order."""
    return list({simplified(term).get_id(): term for term in terms}.values())
