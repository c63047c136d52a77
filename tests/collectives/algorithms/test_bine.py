from collections import defaultdict
from typing import TypeAlias

import pytest

from collectives import resolve_algorithm
from tests.collectives.sends import sends

Message: TypeAlias = tuple[int, int, int]
"""Source, destination, chunks."""

COUNTERPARTS = {
    "broadcast": "tree", "reduce": "tree", "gather": "tree", "scatter": "tree",
    "all_reduce": "recursive_doubling",
}  # fmt: skip


def messages(algorithm: str, collective: str, world_size: int) -> list[list[Message]]:
    """Return the messages of all ranks, step by step."""
    by_step = defaultdict(list)
    for rank, step, send in sends(resolve_algorithm(algorithm, collective), world_size):
        by_step[step].append((rank, send.peer, send.num_chunks))
    return [by_step[step] for step in sorted(by_step)]


def flat(steps: list[list[Message]]) -> list[Message]:
    return [message for step in steps for message in step]


def negabinary(number: int, num_digits: int) -> int:
    """Return the digits of *number*, modulo ``2^num_digits``, to the base -2."""
    digits = 0
    for place in range(num_digits):
        digits |= (number & 1) << place
        number = -(number >> 1)
    return digits


@pytest.mark.parametrize("num_digits", range(1, 8))
def test_a_child_has_the_number_of_its_parent_to_the_base_minus_two_with_equal_lowest_digits_flipped(
    num_digits,
):
    steps = messages("bine", "broadcast", 2**num_digits)

    for step, sent in zip(reversed(range(num_digits)), steps, strict=True):
        for parent, child, _ in sent:
            lowest = (1 << step + 1) - 1
            digits = negabinary(parent, num_digits)
            assert negabinary(child, num_digits) == digits ^ lowest
            assert digits & lowest in (0, lowest)


def distance(source: int, destination: int, world_size: int) -> int:
    return min((source - destination) % world_size, (destination - source) % world_size)


def crossings(source: int, destination: int, world_size: int) -> int:
    """Return how often they are on other nodes of eight, wherever nodes begin.

    The binomial tree has the better of it where ranks fill nodes.
    """
    return sum((source + begin) // 8 != (destination + begin) // 8 for begin in range(8))


@pytest.mark.parametrize("collective", COUNTERPARTS)
@pytest.mark.parametrize("world_size", [32, 64, 128])
@pytest.mark.parametrize(("measure", "least"), [(distance, 0.75), (crossings, 0.9)])
def test_bytes_travel_less_far_round_a_ring_and_cross_between_fewer_nodes_than_those_of_its_counterpart(
    collective, world_size, measure, least
):
    ours, theirs = (
        sum(
            chunks * measure(source, destination, world_size)
            for source, destination, chunks in flat(messages(algorithm, collective, world_size))
        )
        for algorithm in ("bine", COUNTERPARTS[collective])
    )

    assert ours < least * theirs


def test_pairs_of_the_all_reduce_are_those_of_swing():
    pairs = [{(a, b) for a, b, _ in step} for step in messages("bine", "all_reduce", 32)]

    assert pairs == [{(a, b) for a, b, _ in step} for step in messages("swing", "all_reduce", 32)[:5]]
