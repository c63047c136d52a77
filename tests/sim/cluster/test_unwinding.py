"""However a run ends, it says why, and no thread of a rank is left."""

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import count

import pytest

from sim.cluster import RankUnwound, scheduler
from sim.errors import DeadlockError, RankError
from tests.sim.cluster.clusters import after, make_cluster, rank_threads, this_rank

TURNS = 20
"""Of its work a rank does this much before it interrupts the run."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not rank_threads()


def test_ranks_that_wait_for_nobody_are_named_with_what_they_wait_for():
    def work(rank):
        me = this_rank()
        me.charge_ps(1_000_000 * rank)
        if rank != 2:
            me.wait(me.cluster.env.event(), lambda: f"Recv(peer=2) of step {rank} of ring all_reduce")

    with pytest.raises(DeadlockError) as caught:
        make_cluster(3).run(work)

    text = str(caught.value)
    assert "2 of 3 ranks" in text
    assert "rank 0: waits since 0" in text
    assert "Recv(peer=2) of step 1 of ring all_reduce" in text
    assert "rank 2: has finished" in text


def test_an_error_names_its_rank_and_shows_the_ranks_own_traceback():
    unwound = []

    def deep_inside():
        raise ValueError("bad label")

    def work(rank):
        me = this_rank()
        if rank == 1:
            deep_inside()
        try:
            me.wait(me.cluster.env.event(), lambda: "rank 1")
        except RankUnwound:
            unwound.append(rank)
            raise

    with pytest.raises(RankError, match="rank 1 raised ValueError: bad label") as caught:
        make_cluster(4).run(work)

    assert caught.value.rank == 1
    assert isinstance(caught.value.__cause__, ValueError)
    assert "deep_inside" in "".join(traceback.format_exception(caught.value))
    assert unwound == [0]  # ranks 2 and 3 had not begun


def test_a_rank_that_swallows_its_end_meets_it_again_at_the_next_wait():
    def work(rank):
        me = this_rank()
        if rank == 1:
            raise ValueError
        try:
            me.wait(me.cluster.env.event(), lambda: "ever")
        except BaseException:
            me.poll(me.cluster.env.event())

    with pytest.raises(RankError):
        make_cluster(2).run(work)


@pytest.mark.parametrize("busy", [True, False], ids=["in a computing rank", "in a waiting rank"])
def test_an_interrupt_stops_a_run_and_leaves_nothing_behind(busy):
    main = threading.main_thread().ident
    assert main is not None

    def work(rank):
        me = this_rank()
        for turn in count():
            if rank == 0 and turn == TURNS:
                signal.pthread_kill(main, signal.SIGINT)
            if not busy:
                me.wait(after(me, 5), lambda: "a pause")

    with pytest.raises(KeyboardInterrupt):
        make_cluster(3).run(work)


def spin() -> None:
    while True:
        pass


def test_an_interrupt_that_does_not_wake_the_engine_stops_a_rank_that_computes():
    def work(rank):
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # so the engine's thread sleeps on
        spin()

    with pytest.raises(KeyboardInterrupt):
        make_cluster(2).run(work)


def test_a_thread_that_is_on_its_last_way_is_not_stopped_again(monkeypatch):
    monkeypatch.setattr(scheduler, "_AGAIN_SECONDS", 0.02)
    stopped_at_the_end = []

    class SlowToEnd(threading.Thread):
        def run(self):
            super().run()
            try:
                for _ in range(20):
                    time.sleep(0.01)
            except BaseException as error:
                stopped_at_the_end.append(error)

    monkeypatch.setattr(threading, "Thread", SlowToEnd)

    def work(rank):
        os.kill(os.getpid(), signal.SIGINT)
        spin()

    with pytest.raises(KeyboardInterrupt):
        make_cluster(1).run(work)

    assert not stopped_at_the_end


def test_a_rank_that_swallows_its_end_while_it_computes_meets_it_again():
    ends = 0

    def work(rank):
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
        make_cluster(2).run(work)

    assert ends == 2
