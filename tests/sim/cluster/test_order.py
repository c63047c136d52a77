"""Turns of ranks: their order, and what interrupts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import RandomOrder, Thing, Touch
from sim.cluster.order import What
from tests.sim.cluster.clusters import after, fails, make_cluster, this_rank

PAUSES = st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=4)


@dataclass
class GreatestFirst:
    """An order in which the greatest is first; it keeps what it was asked."""

    asked: list[tuple[int, ...]] = field(default_factory=list)
    at_any_speed = False

    def begin(self) -> GreatestFirst:
        return self

    def first(self, what: What, ranks: Sequence[int], now_ps: int) -> int:
        self.asked.append(tuple(ranks))
        return max(ranks)

    def touch(self, thing: Thing, how: Touch) -> None:
        raise AssertionError("ranks of a bare cluster share nothing")


def log_of(pauses: Sequence[Sequence[int]], order: RandomOrder | None) -> list[tuple[int, int]]:
    """Return when which rank went on after each of its pauses."""
    log = []

    def work(number):
        rank = this_rank()
        for pause in pauses[number]:
            rank.wait(after(rank, pause), lambda: "a pause")
            log.append((rank.now_ps(), number))

    make_cluster(len(pauses), order=order).run(work)
    return log


@given(PAUSES, st.integers(0, 99))
def test_an_order_at_random_is_repeated_by_its_seed_and_changes_no_time(pauses, seed):
    by_chance = log_of(pauses, RandomOrder(seed))

    assert by_chance == log_of(pauses, RandomOrder(seed))
    assert sorted(by_chance) == sorted(log_of(pauses, None))
    assert [time_ps for time_ps, _ in by_chance] == sorted(time_ps for time_ps, _ in by_chance)


@pytest.mark.parametrize(
    ("pauses", "orders"),
    [
        ([[1]] * 3, {*permutations(range(3))}),
        ([[1, 0], [1]], {(0, 0, 1), (0, 1, 0), (1, 0, 0)}),  # a rank may act again before another acts once
    ],
)
def test_every_order_of_ranks_at_one_instant_comes_up_and_without_one_the_least_is_first(pauses, orders):
    drawn = {tuple(number for _, number in log_of(pauses, RandomOrder(seed))) for seed in range(60)}

    assert drawn == orders
    assert log_of(pauses, None)[0] == (1, 0)


TIMES = st.lists(st.integers(0, 50), max_size=6)


@given(charges=TIMES, fires=TIMES)
def test_an_event_interrupts_a_computation_when_it_fires_and_the_computation_takes_no_longer(charges, fires):
    handled = []

    def run(_):
        rank = this_rank()
        for at in fires:
            event = rank.cluster.env.timeout(at)
            rank.interrupt(event, lambda at=at: handled.append((at, rank.now_ps())))
        for duration_ps in charges:
            rank.charge_ps(duration_ps)
        return rank.now_ps(), rank.computed_ps, rank.waited_ps

    assert make_cluster(1).run(run) == [(sum(charges), sum(charges), 0)]
    assert handled == [(at, at) for at in sorted(fires) if sum(charges) and at <= sum(charges)]


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
def test_a_handler_may_compute_and_start_what_interrupts_again(first, again, left):
    def run(_):
        rank, seen = this_rank(), []

        def handler():
            seen.append(rank.now_ps())
            rank.charge_ps(3)
            rank.interrupt(after(rank, again), lambda: seen.append(rank.now_ps()))

        rank.interrupt(rank.cluster.env.timeout(first), handler)
        rank.charge_ps(first + again + left)
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[first, first + 3 + again, first + 3 + again + left]]


def test_what_fires_while_the_rank_waits_is_handled_when_it_computes_again():
    def run(_):
        rank, seen = this_rank(), []
        env = rank.cluster.env
        rank.interrupt(env.timeout(5), lambda: seen.append(rank.now_ps()))
        rank.wait(env.timeout(9), lambda: "nothing")
        assert not seen
        rank.charge_ps(2)
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[9, 11]]


def test_a_failure_interrupts_too_and_is_raised_where_it_is_waited_for():
    def run(_):
        rank, seen = this_rank(), []
        work = fails(rank, 5)
        rank.interrupt(work, lambda: seen.append(rank.now_ps()))
        rank.charge_ps(8)
        with pytest.raises(OSError, match="the link is down"):
            rank.wait(work, lambda: "nothing")
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[5, 8]]


def test_a_rank_that_is_killed_while_it_may_be_interrupted_has_computed_until_then():
    handled = []

    def run(_):
        rank = this_rank()
        for at in (5, 9):
            rank.interrupt(rank.cluster.env.timeout(at), lambda: handled.append(rank.now_ps()))
        rank.charge_ps(20)

    cluster = make_cluster(1)
    cluster.deaths_ps[0] = 7
    cluster.run(run)

    (rank,) = cluster.ranks
    assert rank.is_dead
    assert (handled, rank.computed_ps, rank.waited_ps) == ([5], 7, 0)
