"""Candidates of a measurement, and the reasons of those that are left out."""

from __future__ import annotations

from typing import Any

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


def choose(text: str | None, collective: str = "all_reduce", num_ranks: int = 4, native: bool = False) -> Any:
    return choose_candidates(
        text, collective, num_ranks, ranks_per_node=2, native=native, transport="threads"
    )


def names(candidates: Any) -> list[str]:
    return [own.name for own in candidates]


@given(st.lists(st.tuples(words, parameters), min_size=1, max_size=4))
def test_names_keep_their_parameters_in_a_list(entries: list[tuple[str, list[tuple[str, str]]]]) -> None:
    written = [
        f"{name}:{','.join(f'{key}={value}' for key, value in bound)}" if bound else name
        for name, bound in entries
    ]

    assert split_names(",".join(written)) == written


@pytest.mark.parametrize("collective", CONTRACTS)
def test_without_a_name_it_is_the_default_of_the_collective(collective: str) -> None:
    candidates, refusals = choose(None, collective)

    assert (names(candidates), refusals) == ([DEFAULTS[collective]], [])


@pytest.mark.parametrize("collective", CONTRACTS)
def test_over_shared_memory_the_default_is_what_connect_takes(collective: str) -> None:
    (candidate,), refusals = choose_candidates(
        None, collective, 4, ranks_per_node=4, native=True, transport="shm"
    )

    assert (candidate.name, candidate.choice(collective), refusals) == ("connect", None, [])


def test_whoever_asks_for_nodes_is_told() -> None:
    (candidate,), _ = choose("hierarchical")

    assert (candidate.name, str(candidate.algorithm)) == ("hierarchical", "hierarchical:ranks_per_node=2")


@pytest.mark.parametrize("native", [False, True])
def test_all_are_those_that_ship_and_the_vendors_own_where_there_is_one(native: bool) -> None:
    candidates, _ = choose("all", "all_gather", native=native)

    assert names(candidates) == [*algorithm_names("all_gather"), *["native"][: int(native)]]
    assert not any(own.asked_for for own in candidates)


def test_all_may_be_joined_by_others_and_none_is_measured_twice() -> None:
    candidates, _ = choose("all,ring,ring:channels=2")

    assert names(candidates) == [*algorithm_names(), "ring:channels=2"]
    assert [own.name for own in candidates if own.asked_for] == ["ring", "ring:channels=2"]


def test_those_of_several_that_refuse_the_world_size_are_named_with_their_reason() -> None:
    candidates, refusals = choose("ring,halving_doubling:order=near", "all_gather", num_ranks=6)

    assert names(candidates) == ["ring"]
    assert [own.algorithm for own in refusals] == ["halving_doubling:order=near"]
    assert "powers of two" in refusals[0].reason


def test_the_only_one_that_is_named_refuses_by_its_own_error() -> None:
    with pytest.raises(NotSupportedError, match="powers of two"):
        choose("halving_doubling:order=near", "all_gather", num_ranks=6)
