"""Sharing tables: the part of a link's bandwidth that flows get, by their number and directions.

A transport such as TCP leaves some of a link unused, and how much depends on who else is there: with
several flows the link is fuller or emptier than with one, and acknowledgements of what comes the other way
queue among the data.  A table says so for a class of links: with k flows on a link they get together the
k-th part of its bandwidth, the last going on for more; one row while nothing flows the other way over the
same cable, one while something does.

Assumptions: the flows on a link share what it carries by max-min fairness (`sim.network.sharing`), whatever
the table; what they get together depends on nothing but their number and on whether there is any flow the
other way, not on sizes, paths or rates of these.  Bursts and windows are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sim.errors import TopologyError
from sim.units import effective


@dataclass(frozen=True)
class Sharing:
    """What flows get of a link together, as parts of its bandwidth, above 0 and at most 1.

    Attributes:
        one_way: of one flow, of two, …; the last goes on for more.
        both_ways: the same while flows go the other way too; by default as *one_way*.

    Raises:
        TopologyError: a part out of range, or none.
    """

    one_way: tuple[float, ...] = (1.0,)
    both_ways: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, parts in (("one_way", self.one_way), ("both_ways", self.both_ways or self.one_way)):
            if not parts:
                raise TopologyError(f"sharing, {name}: expected a part for one flow at least, such as [0.95]")
            for part in parts:
                if not _is_part(part):
                    raise TopologyError(
                        f"sharing, {name}: expected parts above 0 and at most 1, got {part!r}"
                    )
            object.__setattr__(self, name, _shortest(parts))

    @classmethod
    def of(cls, table: SharingArgument) -> Sharing:
        """Return *table*, which may be written as a mapping; None: all of the bandwidth.

        Raises:
            TopologyError: another key than the two, or a part out of range.
        """
        if table is None or isinstance(table, Sharing):
            return table or WHOLE
        if unknown := table.keys() - {"one_way", "both_ways"}:
            raise TopologyError(f"sharing: expected one_way and both_ways, got {min(unknown)!r}")
        return cls(tuple(table.get("one_way", (1.0,))), tuple(table.get("both_ways", ())))

    @property
    def is_whole(self) -> bool:
        """Whether flows always get all of the bandwidth."""
        return self.one_way == self.both_ways == (1.0,)

    @property
    def minds_direction(self) -> bool:
        """Whether it matters that flows go the other way."""
        return self.one_way != self.both_ways

    def part(self, flows: int, both_ways: bool) -> float:
        """Return the part that *flows*, at least one, get together."""
        parts = self.both_ways if both_ways else self.one_way
        return parts[min(flows, len(parts)) - 1]

    def bandwidth(self, bandwidth: int, flows: int, both_ways: bool) -> int:
        """Return what *flows* get of *bandwidth* bytes/s, rounded down to whole bytes/s, but at least 1."""
        part = self.part(flows, both_ways)
        return bandwidth if part == 1 else effective(bandwidth, part)


def _is_part(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _shortest(parts: Iterable[float]) -> tuple[float, ...]:
    """Return *parts* without those at the end that only repeat the last."""
    shortened = [float(part) for part in parts]
    while len(shortened) > 1 and shortened[-1] == shortened[-2]:
        shortened.pop()
    return tuple(shortened)


WHOLE = Sharing()
"""All of the bandwidth, always."""

SharingArgument: TypeAlias = Sharing | Mapping[str, Iterable[float]] | None
"""A table, or as network files write it; None: all of the bandwidth."""
