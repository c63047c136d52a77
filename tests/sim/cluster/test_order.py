"""Orders of what nothing in time puts in order: each is followed, and none changes a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import RandomOrder, Thing, Touch
from sim.cluster.order import What
from tests.sim.cluster.clusters import after, make_cluster, this_rank

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
    log: list[tuple[int, int]] = []

    def work(number: int) -> None:
        rank = this_rank()
        for pause in pauses[number]:
            rank.wait(after(rank, pause), lambda: "a pause")
            log.append((rank.now_ps(), number))

    make_cluster(len(pauses), order=order).run(work)
    return log


@given(PAUSES, st.integers(0, 99))
def test_an_order_at_random_is_repeated_by_its_seed_and_changes_no_time(
    pauses: list[list[int]], seed: int
) -> None:
    by_chance = log_of(pauses, RandomOrder(seed))

    assert by_chance == log_of(pauses, RandomOrder(seed))
    assert sorted(by_chance) == sorted(log_of(pauses, None))
    assert [time_ps for time_ps, _ in by_chance] == sorted(time_ps for time_ps, _ in by_chance)


def test_every_order_of_three_ranks_at_one_instant_comes_up() -> None:
    orders = {tuple(number for _, number in log_of([[1]] * 3, RandomOrder(seed))) for seed in range(60)}

    assert len(orders) == 6


def test_a_rank_may_act_again_at_an_instant_before_another_acts_once() -> None:
    orders = {tuple(number for _, number in log_of([[1, 0], [1]], RandomOrder(seed))) for seed in range(30)}

    assert orders == {(0, 0, 1), (0, 1, 0), (1, 0, 0)}


def test_an_order_is_asked_for_every_turn_and_chooses_among_those_of_the_least_time() -> None:
    order, log = GreatestFirst(), []

    def work(number: int) -> None:
        rank = this_rank()
        rank.wait(after(rank, 5 if number == 2 else 1), lambda: "a pause")
        log.append(number)

    make_cluster(3, order=order).run(work)

    assert log == [1, 0, 2]
    assert order.asked == [(0, 1, 2), (0, 1), (0,), (0, 1), (0,), (2,)]
