"""Rows of results: which there are, and which of one result stands beside which of another.

A result says which fields of its rows were asked (`testbed.result.Column`).  Of those, the first that
together tell the rows of each result apart are the key.  A field that has one value throughout a result tells
nothing apart; if its value is another in the other result, the question was another, and rows still meet.
Rows of which nothing is said meet by their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Scalar]
"""Fields by name; ``bottleneck.name`` is within ``bottleneck``, ``inefficiencies 1`` the first of a list."""
Tables: TypeAlias = dict[str, list[Row]]
"""Rows by the name of their list; that of a result's own fields is empty."""


def tables(body: Mapping[str, Any]) -> Tables:
    """Return the rows of a result's *body*: one list for each list of objects, and its own fields."""
    found: Tables = {}
    own: dict[str, Scalar] = {}
    for name, value in body.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            found[name] = [_flat(row) for row in value]
        elif isinstance(value, dict):
            for inner, rows in tables(value).items():
                if inner:
                    found[f"{name}.{inner}"] = rows
                else:
                    own.update({f"{name}.{field}": field_value for field, field_value in rows[0].items()})
        else:
            own.update(_flat({name: value}))
    return {"": [own], **found} if own else found


def is_asked(field: str, asked: Collection[str]) -> bool:
    """Return whether *field*, or the field that it is in, is one of those that were *asked*."""
    return field.split(".")[0].split(" ")[0] in asked


def key_fields(first: Sequence[Row], second: Sequence[Row], asked: Sequence[str]) -> tuple[str, ...]:
    """Return the fields out of *asked* that tell the rows of *first* apart, and those of *second*."""
    chosen: tuple[str, ...] = ()
    known = dict.fromkeys(field for row in (*first, *second) for field in row)
    for name in asked:
        for field in (field for field in known if is_asked(field, (name,))):
            if all(len(set(keys(rows, chosen))) == len(rows) for rows in (first, second)):
                return chosen
            more = (*chosen, field)
            if any(len(set(keys(rows, more))) > len(set(keys(rows, chosen))) for rows in (first, second)):
                chosen = more
    return chosen


def keys(rows: Sequence[Row], fields: Sequence[str]) -> list[tuple[Scalar, ...]]:
    """Return each row's values of *fields*."""
    return [tuple(row.get(field) for field in fields) for row in rows]


def by_key(rows: Sequence[Row], fields: Sequence[str]) -> dict[tuple[Scalar, ...], Row]:
    """Return *rows* by key; of several with one key, the second has 2 after it, and so on."""
    seen: Counter[tuple[Scalar, ...]] = Counter()
    found: dict[tuple[Scalar, ...], Row] = {}
    for key, row in zip(keys(rows, fields), rows, strict=True):
        seen[key] += 1
        found[(*key, seen[key])] = row
    return found


def spell_key(fields: Sequence[str], key: Sequence[Scalar]) -> str:
    """Return a key in words: ``ranks 8, strategy wait_free``."""
    *values, number = key
    parts = [f"{field} {value}" for field, value in zip(fields, values, strict=True) if value is not None]
    return ", ".join(parts if number == 1 else [*parts, f"number {number}"])


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for name, inner in value.items():
        field = f"{before}{name}"
        if isinstance(inner, list):
            inner, parted = {str(number): item for number, item in enumerate(inner, 1)}, " "
        else:
            parted = "."
        if isinstance(inner, dict):
            found.update(_flat(inner, f"{field}{parted}"))
        else:
            found[field] = inner
    return found
