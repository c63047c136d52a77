"""Candidates of a measurement, and the reasons of those that are left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError, algorithm_names
from collectives.catalogue.selectors import DEFAULTS
from collectives.program.contracts import CONTRACTS
from testbed.benchmarking.candidates import choose_candidates
from testbed.options.arguments import split_names

words = st.text("abc_", min_size=1, max_size=5)
parameters = st.lists(st.tuples(words, words), max_size=3)


def choose(text, collective="all_reduce", num_ranks=4, native=False):
    return choose_candidates(
        text, collective, num_ranks, ranks_per_node=2, native=native, transport="threads"
    )


def names(candidates):
    return [own.name for own in candidates]


@given(st.lists(st.tuples(words, parameters), min_size=1, max_size=4))
def test_names_keep_their_parameters_in_a_list(entries):
    written = [
        f"{name}:{','.join(f'{key}={value}' for key, value in bound)}" if bound else name
        for name, bound in entries
    ]

    assert split_names(",".join(written)) == written


@pytest.mark.parametrize("collective", CONTRACTS)
def test_without_a_name_it_is_the_default_of_the_collective_or_what_connect_takes(collective):
    alone, refusals = choose(None, collective)
    (shared,), others = choose_candidates(None, collective, 4, ranks_per_node=4, native=True, transport="shm")

    assert (names(alone), refusals, others) == ([DEFAULTS[collective]], [], [])
    assert (shared.name, shared.choice(collective)) == ("connect", None)


@pytest.mark.parametrize("native", [False, True])
def test_all_are_those_that_ship_and_the_vendors_own_where_there_is_one(native):
    candidates, _ = choose("all", "all_gather", native=native)

    assert names(candidates) == [*algorithm_names("all_gather"), *["native"][: int(native)]]
    assert not any(own.asked_for for own in candidates)


def test_all_may_be_joined_by_others_and_none_is_measured_twice():
    candidates, _ = choose("all,ring,ring:channels=2")

    assert names(candidates) == [*algorithm_names(), "ring:channels=2"]
    assert [own.name for own in candidates if own.asked_for] == ["ring", "ring:channels=2"]


def test_one_that_refuses_the_world_size_is_named_among_several_and_raises_alone():
    candidates, (refusal,) = choose("ring,halving_doubling:order=near", "all_gather", num_ranks=6)

    assert names(candidates) == ["ring"]
    assert refusal.algorithm == "halving_doubling:order=near"
    assert "powers of two" in refusal.reason
    with pytest.raises(NotSupportedError, match="powers of two"):
        choose("halving_doubling:order=near", "all_gather", num_ranks=6)
