"""Few points of tests that have many: every value of every parameter once, and not their product.

A test that goes over algorithms, collectives and world sizes makes one promise at hundreds of points.
``make test-all`` keeps that promise at few of them, so that it stays short whatever is added:

- of a parameter's numbers the least, the middle and the greatest;
- every other value of a parameter at least once;
- of points of a test that are marked ``costly`` no more than `MOST_COSTLY`, spread over them;
- of a property, fewer examples.

``make test`` leaves costly tests out, and draws fewer examples still; ``make test-nightly`` takes all points,
all examples, and tests marked ``slow``, whose promises others keep too.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

import pytest

Value = tuple[str, Hashable]

MOST_COSTLY = 8
"""Points of a costly test."""


def covering(items: Sequence[pytest.Item], *, costly: bool) -> set[pytest.Item]:
    """Return those of *items* that together have every value of every parameter of every test.

    Slow tests are not among them, costly ones where *costly* says so.
    """
    points = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow") and (costly or not item.get_closest_marker("costly")):
            points[item.nodeid.partition("[")[0]].append(item)
    return {item for own in points.values() for item in _covering_one_test(own)}


def _covering_one_test(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Choose greedily: next the point, the first of several, that has most of the values still wanted."""
    values = {item: _values(item) for item in items}
    wanted = _without_most_numbers(set().union(*values.values()))
    if not wanted:
        return list(items)

    chosen = []
    while wanted:
        best = max(items, key=lambda item: len(values[item] & wanted))
        chosen.append(best)
        wanted -= values[best]
    costly = [item for item in chosen if item.get_closest_marker("costly")]
    left_out = set(costly) - set(costly[:: -(-len(costly) // MOST_COSTLY) or 1])
    return [item for item in chosen if item not in left_out]


def _values(item: pytest.Item) -> set[Value]:
    callspec = getattr(item, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    return {(name, _key(value)) for name, value in parameters.items()}


def _key(value: object) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value  # type: ignore[return-value]


def _without_most_numbers(values: set[Value]) -> set[Value]:
    numbers = defaultdict(list)
    for name, value in values:
        if _is_number(value):
            numbers[name].append(value)  # type: ignore[arg-type]
    kept = set()
    for name, own in numbers.items():
        own.sort()
        kept |= {(name, own[0]), (name, own[len(own) // 2]), (name, own[-1])}
    return {(name, value) for name, value in values if not _is_number(value) or (name, value) in kept}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
