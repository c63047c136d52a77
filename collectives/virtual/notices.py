"""Notices of a run, each given once: what was mapped, what was left out, and what looks wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from collectives.execution.blame import spell_ranks
from sim.cluster.rank_thread import current_rank_thread
from sim.cluster.surroundings import OfCluster

TRIED = ("2.13.",)
"""Versions of torch with which the tests of this package have passed."""


def of_version(version: str) -> tuple[str, ...]:
    """Return what there is to say of a *version* of torch: nothing, if it is one of those tried."""
    if version.startswith(TRIED):
        return ()
    tried = " and ".join(own.rstrip(".") for own in TRIED)
    return (f"torch {version} was not tried, {tried} was: testbed doctor says what it lacks",)


class Notices(OfCluster):
    """The notices of a run, in the order in which they were first given."""

    def __init__(self) -> None:
        self._about: dict[str, dict[str, None]] = {}
        self._mistakes: dict[str, None] = {}
        self._last_reads: dict[int, tuple[str, str]] = {}
        self._sources: list[Callable[[], Iterable[str]]] = []

    def add(self, text: str, item: str | None = None) -> None:
        """Give a notice, unless it has been given before; those of one text list their items."""
        items = self._about.setdefault(text, {})
        if item is not None:
            items.setdefault(item)

    def add_read(self, text: str, place: str, item: str | None = None) -> None:
        """Give a notice as `add` does, of what the current rank reads without data at a *place*."""
        self.add(text, item)
        rank_thread = current_rank_thread()
        if rank_thread is not None:
            self._last_reads[rank_thread.rank] = text, place

    def last_read(self, rank: int) -> str | None:
        """Return what *rank* has read last without data, and where; None if it has read nothing so."""
        text, place = self._last_reads.get(rank, (None, ""))
        return f"{text}, last at {place}" if place else text

    def has_just_read(self, text: str, place: str) -> bool:
        """Return whether the current rank has last read what *text* says, at *place*."""
        rank_thread = current_rank_thread()
        return rank_thread is not None and self._last_reads.get(rank_thread.rank) == (text, place)

    def add_mistake(self, text: str) -> None:
        """Give a notice of what the user does wrong, unless it has been given before."""
        self.add(text)
        self._mistakes.setdefault(text)

    def add_source(self, mistakes: Callable[[], Iterable[str]]) -> None:
        """Ask *mistakes* what the user does wrong, whenever someone wants to know."""
        self._sources.append(mistakes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Those of what the user does wrong."""
        return tuple(dict.fromkeys([*self._mistakes, *self._from_sources()]))

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them."""
        given = [f"{text}: {', '.join(items)}" if items else text for text, items in self._about.items()]
        return tuple(dict.fromkeys([*given, *self._from_sources()]))

    def _from_sources(self) -> list[str]:
        return [text for mistakes in self._sources for text in mistakes()]


class Findings:
    """Mistakes found on ranks: those of one place and one text are one."""

    def __init__(self) -> None:
        self._ranks: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def add(self, rank: int, place: str, what: str) -> None:
        """Note *what* a rank does at a *place* of the user's code."""
        self._ranks[place, what].add(rank)

    def clear(self) -> None:
        """Forget all."""
        self._ranks.clear()

    def texts(self) -> Iterator[str]:
        """Yield them, each with the ranks that it is on."""
        for (place, what), ranks in self._ranks.items():
            yield f"{place}: {spell_ranks(ranks)}: {what}"
