"""Turns go in order of virtual time, and whoever fails ends the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import RankUnwound
from sim.cluster.scheduler import Scheduler, Turn
from tests.sim.cluster.clusters import rank_threads


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4))
def test_of_threads_that_can_go_on_the_one_with_the_lowest_time_goes_first_then_the_lowest_number(
    sleeps: list[list[int]],
) -> None:
    env = simpy.Environment(initial_time=0)
    scheduler = Scheduler(env, ())
    turns = scheduler.make_turns(dict.fromkeys(range(len(sleeps)), 0))
    log: list[tuple[int, int]] = []

    def thread(turn: Turn) -> Callable[[], None]:
        def run() -> None:
            for sleep_ps in sleeps[turn.number]:
                log.append((turn.now_ps, turn.number))
                event = env.timeout(turn.now_ps + sleep_ps - int(env.now))
                event.callbacks.append(lambda _: turn.wake(int(env.now)))
                turn.wait(lambda: "a pause")

        return run

    with scheduler.threads([thread(turn) for turn in turns]):
        assert scheduler.run() is None

    assert [time_ps for time_ps, _ in log] == sorted(time_ps for time_ps, _ in log)
    assert log[: len(sleeps)] == [(0, number) for number in range(len(sleeps))]
    assert [turn.now_ps for turn in turns] == [sum(own) for own in sleeps]
    assert all(turn.is_over for turn in turns)


def test_a_thread_that_raises_ends_the_run_and_those_that_wait_are_unwound() -> None:
    scheduler = Scheduler(simpy.Environment(initial_time=0), ())
    first, second = scheduler.make_turns({0: 0, 1: 0})
    ends: list[type[BaseException]] = []

    def waits() -> None:
        try:
            first.wait(lambda: "ever")
            assert first.is_unwound
            raise RankUnwound
        except RankUnwound as end:
            ends.append(type(end))
            raise

    def raises() -> None:
        raise KeyError("lost")

    def run() -> None:
        with scheduler.threads([waits, raises]):
            assert scheduler.run() is second
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        run()

    assert isinstance(second.error, KeyError)
    assert first.error is None
    assert ends == [RankUnwound]
    assert not rank_threads()
