"""Comparison of two results: what was asked differently, and what came out differently.

Any two documents that commands write with ``--json`` can be compared (`testbed.result.Result.document`):
`read_result` reads them strictly, `tables` finds their rows, `key_fields` says which row of one stands beside
which row of the other, `compare` holds them against each other.

A result says which fields of its rows were asked (`testbed.result.Column`).  Of those, the first that
together tell the rows of each result apart are the key.  A field that has one value throughout a result tells
nothing apart; if its value is another in the other result, the question was another, and rows still meet.
Rows of which nothing is said meet by their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from collectives.formats.json_document import read_json_document
from testbed.errors import UsageError
from testbed.output.folder import Method

Scalar: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Scalar]
"""Fields by name; ``bottleneck.name`` is within ``bottleneck``, ``inefficiencies 1`` the first of a list."""
Tables: TypeAlias = dict[str, list[Row]]
"""Rows by the name of their list; that of a result's own fields is empty."""


class ResultError(UsageError):
    """A file that is no result of a command."""


class ResultFile(BaseModel):
    """What every result says of itself; the rest of the document is its body."""

    model_config = ConfigDict(extra="allow", frozen=True)

    schema_number: Literal[1] = Field(alias="schema")
    command: str
    versions: dict[str, str | None]
    method: Method | list[Method]
    model: str
    seed: int | None
    topologies: dict[str, str]
    question: str = ""
    answer: str | list[str] = ""
    asked: dict[str, list[str]] = {}
    how: dict[str, list[str]] = {}
    units: dict[str, str] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The result itself, as JSON types."""
        return dict(self.model_extra or {})

    @property
    def methods(self) -> list[Method]:
        """How its figures were got."""
        return self.method if isinstance(self.method, list) else [self.method]


def read_result(path: str | PathLike[str]) -> ResultFile:
    """Return the result in the file at *path*.

    Raises:
        ResultError: it holds none.
        OSError: it cannot be read.
    """
    return read_json_document(path, ResultFile, ResultError, "a result, as commands write it with --json")


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


@dataclass(frozen=True)
class Difference:
    """A field that is not the same in both results.

    Attributes:
        table: the list in which its row stands; empty for a field of the result itself.
        row: the row's key in words.
        field: its name.
        first: the value in the first result; None where it has none.
        second: the value in the second.
        relative: ``(second - first) / |first|``; None where that is no finite number.
    """

    table: str
    row: str
    field: str
    first: Scalar
    second: Scalar
    relative: float | None


@dataclass(frozen=True)
class Pair:
    """Two rows that stand beside each other; *table* and *row* as in `Difference`."""

    table: str
    row: str
    first: Row
    second: Row


@dataclass(frozen=True)
class Comparison:
    """Two results beside each other.

    Attributes:
        question: what was asked, or with what, differently.
        answer: what came out differently, by more than the tolerance.
        pairs: the rows that both have.
        only_first: rows that the second result lacks, as table and key.
        only_second: rows that the first lacks.
        num_compared: fields of answers that both results have, with a value in one at least.
        asked: fields that belong to the question, by table.
        units: of fields, as the results say them.
    """

    question: tuple[Difference, ...]
    answer: tuple[Difference, ...]
    pairs: tuple[Pair, ...]
    only_first: tuple[tuple[str, str], ...]
    only_second: tuple[tuple[str, str], ...]
    num_compared: int
    asked: Mapping[str, Sequence[str]]
    units: Mapping[str, str]

    @property
    def agrees(self) -> bool:
        """Whether both have the same rows, and the same in them."""
        return not (self.answer or self.only_first or self.only_second)


def compare(first: ResultFile, second: ResultFile, tolerance: float = 0.0) -> Comparison:
    """Return how *second* differs from *first*; by which engine or model it was found is no answer.

    Fields that only one of the results has at all are no difference: versions add fields.

    Args:
        first: what the other is held against.
        second: the other.
        tolerance: relative difference that is none.
    """
    asked = {
        table: list(dict.fromkeys((*first.asked.get(table, ()), *second.asked.get(table, ()))))
        for table in (*first.asked, *second.asked)
    }
    asked[""] = [*asked.get("", ()), "assumptions"]
    how = {
        table: {*first.how.get(table, ()), *second.how.get(table, ())} for table in (*first.how, *second.how)
    }
    pairs, only_first, only_second = _pair(tables(first.body), tables(second.body), asked)
    question = list(_differences("", "", _said(first, second), _said(second, first)))
    answer: list[Difference] = []
    num_compared = 0
    shared = {table: _shared(pairs, table) for table in {pair.table for pair in pairs}}
    for pair in pairs:
        fields = [field for field in pair.first if field in shared[pair.table]]
        fields += [field for field in pair.second if field in shared[pair.table] and field not in pair.first]
        no_answer = {*asked.get(pair.table, ()), *how.get(pair.table, ())}
        mine, theirs = ({field: row.get(field) for field in fields} for row in (pair.first, pair.second))
        known = [field for field in fields if mine[field] is not None or theirs[field] is not None]
        num_compared += sum(not is_asked(field, no_answer) for field in known)
        for own in _differences(pair.table, pair.row, mine, theirs):
            if is_asked(own.field, no_answer):
                question.append(own)
            elif own.relative is None or abs(own.relative) > tolerance:
                answer.append(own)
    return Comparison(
        tuple(question),
        tuple(answer),
        tuple(pairs),
        tuple(only_first),
        tuple(only_second),
        num_compared,
        asked,
        {**first.units, **second.units},
    )


def _said(result: ResultFile, other: ResultFile) -> dict[str, Scalar]:
    """Return what *result* says of how it was got; topologies that *other* lacks by name alone."""
    own = result.topologies
    alone = [name for name in own if name not in other.topologies]
    versions = {f"version of {name}": version for name, version in result.versions.items()}
    shared = {f"topology {name}": digest for name, digest in own.items() if name not in alone}
    how = {"method": ", ".join(result.methods), "model": result.model, "seed": result.seed}
    return {"command": result.command, **versions, **how, **shared, "topologies": ", ".join(alone) or None}


def _pair(
    first: Tables, second: Tables, asked: Mapping[str, Sequence[str]]
) -> tuple[list[Pair], list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the rows of both, and those that only one has."""
    pairs: list[Pair] = []
    only: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []
    for table in dict.fromkeys((*first, *second)):
        fields = key_fields(first.get(table, ()), second.get(table, ()), asked.get(table, ()))
        mine, theirs = (by_key(own.get(table, ()), fields) for own in (first, second))
        for key in dict.fromkeys((*mine, *theirs)):
            words = spell_key(fields, key)
            if key in mine and key in theirs:
                pairs.append(Pair(table, words, mine[key], theirs[key]))
            else:
                only[key not in mine].append((table, words))
    return pairs, *only


def _shared(pairs: list[Pair], table: str) -> set[str]:
    """Return the fields that rows of *table* have in both results."""
    own = [pair for pair in pairs if pair.table == table]
    return {field for pair in own for field in pair.first} & {field for pair in own for field in pair.second}


def _differences(
    table: str, row: str, first: Mapping[str, Scalar], second: Mapping[str, Scalar]
) -> Iterator[Difference]:
    for field in dict.fromkeys((*first, *second)):
        mine, theirs = first.get(field), second.get(field)
        if mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool):
            continue
        yield Difference(table, row, field, mine, theirs, relative(mine, theirs))


def is_number(value: object) -> bool:
    """Return whether *value* is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def relative(first: Any, second: Any) -> float | None:
    """Return ``(second - first) / |first|``, 0 of equal numbers; None where that is no finite number."""
    if not (is_number(first) and is_number(second)):
        return None
    if first == second:
        return 0.0
    try:
        found = float((second - first) / abs(first))
    except (OverflowError, ZeroDivisionError):
        return None
    return found if isfinite(found) else None
