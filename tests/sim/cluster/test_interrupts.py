"""A rank that computes can be interrupted by events."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.cluster.clusters import make_cluster, this_rank

TIMES = st.lists(st.integers(0, 50), max_size=6)


@given(charges=TIMES, fires=TIMES)
def test_an_event_interrupts_a_computation_when_it_fires_and_the_computation_takes_no_longer(
    charges: list[int], fires: list[int]
) -> None:
    handled: list[tuple[int, int]] = []

    def run(_: int) -> tuple[int, int, int]:
        rank = this_rank()
        for at in fires:
            event = rank.cluster.env.timeout(at)
            rank.interrupt(event, lambda at=at: handled.append((at, rank.now_ps())))  # type: ignore[misc]
        for duration_ps in charges:
            rank.charge_ps(duration_ps)
        return rank.now_ps(), rank.computed_ps, rank.waited_ps

    assert make_cluster(1).run(run) == [(sum(charges), sum(charges), 0)]
    assert handled == [(at, at) for at in sorted(fires) if sum(charges) and at <= sum(charges)]


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
def test_a_handler_may_compute_and_start_what_interrupts_again(first: int, again: int, left: int) -> None:
    def run(_: int) -> list[int]:
        rank, seen = this_rank(), []

        def handler() -> None:
            seen.append(rank.now_ps())
            rank.charge_ps(3)
            rank.interrupt(rank.spawn(sleep(again)), lambda: seen.append(rank.now_ps()))

        def sleep(duration_ps: int) -> Generator[simpy.Event, object, None]:
            yield rank.cluster.env.timeout(duration_ps)

        rank.interrupt(rank.cluster.env.timeout(first), handler)
        rank.charge_ps(first + again + left)
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[first, first + 3 + again, first + 3 + again + left]]


def test_what_fires_while_the_rank_waits_is_handled_when_it_computes_again() -> None:
    def run(_: int) -> list[int]:
        rank, seen = this_rank(), []
        env = rank.cluster.env
        rank.interrupt(env.timeout(5), lambda: seen.append(rank.now_ps()))
        rank.wait(env.timeout(9), lambda: "nothing")
        assert not seen
        rank.charge_ps(2)
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[9, 11]]


def test_a_failure_interrupts_too_and_is_raised_where_it_is_waited_for() -> None:
    def fail(env: simpy.Environment) -> Generator[simpy.Event, object, None]:
        yield env.timeout(5)
        raise KeyError("lost")

    def run(_: int) -> list[int]:
        rank, seen = this_rank(), []
        work = rank.spawn(fail(rank.cluster.env))
        rank.interrupt(work, lambda: seen.append(rank.now_ps()))
        rank.charge_ps(8)
        with pytest.raises(KeyError, match="lost"):
            rank.wait(work, lambda: "nothing")
        return [*seen, rank.now_ps()]

    assert make_cluster(1).run(run) == [[5, 8]]


def test_a_rank_that_is_killed_while_it_may_be_interrupted_has_computed_until_then() -> None:
    handled: list[int] = []

    def run(_: int) -> None:
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
