"""Rows of results: which there are, and which of one result stands beside which of another.

A result's rows have no declared key: a field such as ``algorithm`` is asked of one command and chosen by
another.  So the key is found: of the fields that commands are asked for, in a fixed order, the first that
together tell the rows of each result apart.  A field that has one value throughout a result tells nothing
apart; if its value is another in the other result, the question was another, and rows still meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Scalar]
"""Fields by name; ``bottleneck.name`` is within ``bottleneck``, ``inefficiencies 1`` the first of a list."""
Tables: TypeAlias = dict[str, list[Row]]
"""Rows by the name of their list; that of a result's own fields is empty."""

ASKED = (
    "kind", "claim", "id", "name", "work", "profile", "script", "model", "network", "label", "placement",
    "collective", "ranks", "world_size", "nbytes", "size_bytes", "bytes", "dtype", "op", "root",
    "strategy", "bucket_cap_mb", "algorithm_asked", "scaling", "timing", "transport", "transport_model",
    "device", "protocol", "conditions", "tokens_per_rank", "price_per_gpu_hour", "seed",
    "steps", "iteration", "step", "rank", "source", "description", "question", "tolerance",
)  # fmt: skip
"""Fields that a command is asked for, those first that name a row best."""
ASKED_OR_CHOSEN = ("algorithm", "channels", "engine", "method")
"""Fields that some commands are asked for and others choose: part of a key only where the rest is none."""


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


def is_asked(field: str) -> bool:
    """Return whether *field* belongs to the question."""
    return field.split(".")[0].split(" ")[0] in (*ASKED, "overrides", "assumptions")


def key_fields(first: Sequence[Row], second: Sequence[Row]) -> tuple[str, ...]:
    """Return the fields that tell the rows of *first* apart, and those of *second*."""
    chosen: tuple[str, ...] = ()
    known = {field for row in (*first, *second) for field in row}
    overrides = sorted(field for field in known if field.startswith("overrides."))
    for field in (*ASKED, *overrides, *ASKED_OR_CHOSEN):
        if field not in known or all(len(set(keys(rows, chosen))) == len(rows) for rows in (first, second)):
            continue
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
