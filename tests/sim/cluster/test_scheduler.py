"""Turns go in order of virtual time, and whatever ends a run ends its threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import Cluster, RankUnwound
from sim.cluster.scheduler import Scheduler, Turn
from sim.topology import Topology


def two_ranks() -> Cluster:
    return Cluster(Topology.switch(num_ranks=2, bandwidth="1Gbps", latency="1us"))


def rank_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def spin() -> None:
    while True:
        pass


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4))
def test_of_threads_that_can_go_on_the_one_with_the_lowest_time_goes_first_then_the_lowest_number(
    sleeps: list[list[int]],
) -> None:
    env = simpy.Environment(initial_time=0)
    scheduler = Scheduler(env, ())
    turns = scheduler.make_turns([0] * len(sleeps))
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
    first, second = scheduler.make_turns([0, 0])
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


def test_an_interrupt_that_does_not_wake_the_engine_stops_a_rank_that_computes() -> None:
    def work(rank: int) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # so the engine's thread sleeps on
        spin()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        two_ranks().run(work)

    assert time.monotonic() - began < 3
    assert not rank_threads()


def test_a_rank_that_swallows_its_end_while_it_computes_meets_it_again() -> None:
    ends = 0

    def work(rank: int) -> None:
        nonlocal ends
        os.kill(os.getpid(), signal.SIGINT)
        try:
            spin()
        except BaseException:
            ends += 1
        try:
            spin()
        finally:
            ends += 1

    with pytest.raises(KeyboardInterrupt):
        two_ranks().run(work)

    assert ends == 2
    assert not rank_threads()
