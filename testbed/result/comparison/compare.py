"""Differences between two results: what was asked differently, and what came out differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from testbed.result.comparison.result_file import ResultFile
from testbed.result.comparison.rows import (
    Row,
    Scalar,
    Tables,
    by_key,
    is_asked,
    key_fields,
    spell_key,
    tables,
)


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
    return {
        "command": result.command,
        **{f"version of {name}": version for name, version in result.versions.items()},
        "method": ", ".join(result.methods),
        "model": result.model,
        "seed": result.seed,
        **{f"topology {name}": digest for name, digest in own.items() if name not in alone},
        "topologies": ", ".join(alone) or None,
    }


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
