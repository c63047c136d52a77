"""Which rank takes part in which rows of a collective: so nobody walks through rows that are not his."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Any

from collectives.simulation.engines.row_messages import MANY, Row


class Agenda:
    """Which rank takes part in which rows, where not all do."""

    def __init__(self) -> None:
        self._of_all: list[int] = []
        self._of_many: list[int] = []
        self._takes_part: dict[int, Any] = {}
        self._of_rank: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, row: Row) -> None:
        """Note who takes part in *row*, which comes after those noted before."""
        if row.takes_part is None:
            self._of_all.append(row.number)
        elif len(row.ranks) > MANY:
            self._of_many.append(row.number)
            self._takes_part[row.number] = row.takes_part
        else:
            for rank in row.ranks.tolist():
                self._of_rank[rank].append(row.number)

    def next_of(self, rank: int, number: int) -> int | None:
        """Return the first row from *number* on in which *rank* takes part, of those noted."""
        found = [_first_from(rows, number) for rows in (self._of_all, self._of_rank[rank])]
        first = min((row for row in found if row is not None), default=None)
        for row in self._of_many[bisect_left(self._of_many, number) :]:
            if first is not None and row > first:
                break
            if self._takes_part[row][rank]:
                return row
        return first

    def forget(self, row: Row) -> None:
        """Drop what was noted of *row*, to which nobody comes any more."""
        self._takes_part.pop(row.number, None)
        if self._of_many and self._of_many[0] == row.number:
            del self._of_many[0]


def _first_from(rows: list[int], number: int) -> int | None:
    at = bisect_left(rows, number)
    return rows[at] if at < len(rows) else None
