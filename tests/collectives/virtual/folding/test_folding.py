"""Folding: how classes are split, from attempt to attempt, and who speaks for whom in one."""

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from collectives.virtual.folding.classes import Classes, MembersDiffer, RankClass
from collectives.virtual.folding.divisions import Rows
from collectives.virtual.folding.folding import Folding
from collectives.virtual.folding.probes import ALL_PROBES, MOST_PROBES, probes_of
from collectives.virtual.folding.signature import alike_in


def attempt(folding: Folding, does: Callable[[int], object], classes: Classes | None = None) -> bool:
    """Run an attempt in which a rank issues ``does(rank)``; return whether no members differ."""
    classes = classes or folding.classes()
    for own in classes.folded:
        folding.known.update((rank, ((does(rank),),)) for rank in own.compared)
        alike = alike_in({rank: folding.known[rank] for rank in own.compared}, operator.eq)
        if len(alike) > 1:
            folding.split(MembersDiffer("they issue other things", ranks=own.ranks, alike=alike), classes)
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


def test_ranks_that_do_the_same_are_one_class_in_one_attempt_but_those_that_are_named():
    folding = Folding(8, alone={3})

    assert run_to_the_end(folding, lambda rank: "same") == 1
    assert ranks_of(folding) == [(0, 1, 2, 4, 5, 6, 7)]


@pytest.mark.parametrize("odd", [0, 1, 2, 7, 1016, 1023])
def test_a_rank_of_which_scripts_like_to_ask_is_found_at_once_and_runs_by_itself(odd):
    folding = Folding(1024, ranks_per_node=8)

    assert run_to_the_end(folding, lambda rank: rank == odd) == 2
    assert ranks_of(folding) == [tuple(rank for rank in range(1024) if rank != odd)]
    assert odd or not folding.classes().folded[0].probes  # the last rank is known from the first attempt


@pytest.mark.parametrize(
    "does",
    [
        lambda rank: rank % 2, lambda rank: rank // 8 == 0, lambda rank: rank // 8 == 127,
        lambda rank: rank % 8 == 0, lambda rank: rank % 8 == 7, lambda rank: rank % 8,
        lambda rank: rank >= 512, lambda rank: (rank % 2, rank == 0, rank == 1023),
    ],
    ids=["even", "first node", "last node", "first of nodes", "last of nodes", "number", "half", "both"],
)  # fmt: skip
def test_what_scripts_ask_of_a_rank_splits_a_class_in_few_attempts(does):
    folding = Folding(1024, ranks_per_node=8)

    assert run_to_the_end(folding, does) <= 4
    assert all(len({does(rank) for rank in ranks}) == 1 for ranks in ranks_of(folding))
    assert len(ranks_of(folding)) <= 8


@given(st.integers(65, 3000), st.integers(1, 16), st.integers(0, 3000))
def test_probes_are_members_and_few(num_ranks, ranks_per_node, num_others):
    ranks = range(5, num_ranks, 3)
    num_folded = len(ranks) + num_others

    probes = probes_of(ranks, ranks_per_node, num_folded)

    assert ranks[-1] in probes
    assert set(probes) < set(ranks[1:])
    assert len(probes) <= max(1, min(MOST_PROBES, ALL_PROBES * len(ranks) // num_folded))
    assert probes == probes_of(ranks, ranks_per_node, num_folded)


def test_what_tells_ranks_apart_splits_a_class_at_once():
    folding = Folding(16)
    classes = folding.classes()
    stage = lambda rank: rank // 4  # noqa: E731

    folding.split(MembersDiffer("messages", stage), classes)

    assert ranks_of(folding) == [tuple(range(first, first + 4)) for first in (0, 4, 8, 12)]


def test_unequal_parts_split_a_class_where_the_parts_end():
    folding = Folding(1024)
    classes = folding.classes()
    classes.partitions.announce(0, tuple(range(1024)))
    classes.note_division(Rows(128256, 1024))  # 126 rows for each of 1,017 ranks, then 114, then none

    assert not attempt(folding, lambda rank: min(max(128256 - 126 * rank, 0), 126), classes)
    assert ranks_of(folding) == [tuple(range(1017)), tuple(range(1018, 1024))]
    assert run_to_the_end(folding, lambda rank: min(max(128256 - 126 * rank, 0), 126)) == 1


def test_classes_of_many_ranks_are_halved_and_those_of_few_given_up():
    many, few = Folding(128), Folding(64)

    assert run_to_the_end(many, lambda rank: rank < 77) < 12
    run_to_the_end(few, lambda rank: rank < 37)

    assert not any(0 < 77 - ranks[0] < len(ranks) for ranks in ranks_of(many))
    assert ranks_of(few) == []


def test_ranks_that_all_do_something_else_are_refused_in_the_end():
    folding = Folding(4096)

    with pytest.raises(NotSupportedError, match=r"after 40 attempts .* --fold off"):
        run_to_the_end(folding, lambda rank: rank)


def test_a_root_that_the_script_names_speaks_for_itself():
    classes = Classes([RankClass(range(4))])
    classes.partitions.announce(0, (0, 1, 2, 3))
    for hosts in [(0, 1), (2, 3)]:
        classes.partitions.announce(0, hosts)

    classes.check_root((0, 1, 2, 3), 0, 0)
    classes.check_root((0, 1), 0, 1)  # of two groups that were made together
    with pytest.raises(MembersDiffer, match="rank 2 is the root") as caught:
        classes.check_root((0, 1, 2, 3), 0, 2)

    assert [caught.value.key(rank) for rank in range(4)] == [False, False, True, False]
