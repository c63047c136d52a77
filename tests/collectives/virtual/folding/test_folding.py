"""Folding: how classes are split, from attempt to attempt."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from collectives.errors import NotSupportedError
from collectives.virtual.folding.classes import Classes, MembersDiffer
from collectives.virtual.folding.divisions import Rows
from collectives.virtual.folding.folding import Folding


def attempt(folding: Folding, does: Callable[[int], object], classes: Classes | None = None) -> bool:
    """Run an attempt in which a rank issues ``does(rank)``; return whether no members differ."""
    classes = classes or folding.classes()
    for own in classes.folded:
        for rank in (own.first, own.probe):
            if rank is not None:
                folding.known[rank] = ((does(rank),),)
        if folding.known[own.ranks[0]] != folding.known[own.ranks[-1]]:
            folding.split(MembersDiffer("they issue other things", ranks=own.ranks), classes)
            return False
    return True


def ranks_of(folding: Folding) -> list[tuple[int, ...]]:
    return [own.ranks for own in folding.classes().folded]


def run_to_the_end(folding: Folding, does: Callable[[int], object]) -> int:
    """Return how many attempts it took."""
    attempts = 1
    while not attempt(folding, does):
        attempts += 1
    return attempts


def test_ranks_that_do_the_same_are_one_class_in_one_attempt_but_those_that_are_named() -> None:
    folding = Folding(8, alone={3})

    assert run_to_the_end(folding, lambda rank: "same") == 1
    assert ranks_of(folding) == [(0, 1, 2, 4, 5, 6, 7)]


def test_a_first_rank_that_does_more_takes_two_attempts_and_runs_by_itself() -> None:
    folding = Folding(1024)

    assert run_to_the_end(folding, lambda rank: rank == 0) == 2
    assert ranks_of(folding) == [tuple(range(1, 1024))]
    assert folding.classes().folded[0].probe is None  # the last rank is known from the first attempt


def test_a_last_rank_that_does_less_is_found_after_the_first() -> None:
    folding = Folding(1024)

    assert run_to_the_end(folding, lambda rank: rank == 1023) == 3
    assert ranks_of(folding) == [tuple(range(1023))]


def test_what_tells_ranks_apart_splits_a_class_at_once() -> None:
    folding = Folding(16)
    classes = folding.classes()
    stage: Callable[[int], Hashable] = lambda rank: rank // 4  # noqa: E731

    folding.split(MembersDiffer("messages", stage), classes)

    assert ranks_of(folding) == [tuple(range(first, first + 4)) for first in (0, 4, 8, 12)]


def test_unequal_parts_split_a_class_where_the_parts_end() -> None:
    folding = Folding(1024)
    classes = folding.classes()
    classes.partitions.announce(0, tuple(range(1024)))
    classes.note_division(Rows(128256, 1024))  # 126 rows for each of 1,017 ranks, then 114, then none

    assert not attempt(folding, lambda rank: min(max(128256 - 126 * rank, 0), 126), classes)
    assert ranks_of(folding) == [tuple(range(1017)), tuple(range(1018, 1024))]
    assert run_to_the_end(folding, lambda rank: min(max(128256 - 126 * rank, 0), 126)) == 1


def test_classes_of_many_ranks_are_halved_and_those_of_few_given_up() -> None:
    many, few = Folding(128), Folding(64)

    assert run_to_the_end(many, lambda rank: rank < 77) < 12
    run_to_the_end(few, lambda rank: rank < 37)

    assert not any(0 < 77 - ranks[0] < len(ranks) for ranks in ranks_of(many))
    assert ranks_of(few) == []


def test_ranks_that_all_do_something_else_are_refused_in_the_end() -> None:
    folding = Folding(4096)

    with pytest.raises(NotSupportedError, match=r"after 40 attempts .* --fold off"):
        run_to_the_end(folding, lambda rank: rank)
