"""Rank threads: one at a time, in order of virtual time; each computes, waits and polls."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Cluster, RankError, SimulationError
from tests.sim.cluster.clusters import after, fails, make_cluster, this_rank


def test_a_thread_that_is_no_rank_has_no_current_rank():
    assert Cluster.current() is None
    assert make_cluster(2).run(lambda rank: this_rank().rank) == [0, 1]


@given(st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=5))
def test_whatever_ranks_do_runs_in_order_of_time_and_repeats(delays_of_ranks):
    def observe():
        log = []

        def work(rank):
            me = this_rank()
            for delay in delays_of_ranks[rank]:
                if delay % 3 == 0:
                    me.charge_ps(delay)
                me.wait(after(me, delay), lambda: "a pause")
                log.append((me.now_ps(), rank))
            return me.now_ps()

        return make_cluster(len(delays_of_ranks)).run(work), log

    first, second = observe(), observe()

    assert first == second
    assert first[0] == [sum(d + (d if d % 3 == 0 else 0) for d in delays) for delays in delays_of_ranks]
    assert [time_ps for time_ps, _ in first[1]] == sorted(time_ps for time_ps, _ in first[1])


class Recorder:
    """A context that knows which rank is in place."""

    def __init__(self) -> None:
        self.inside = None
        self.switches = 0

    def enter(self, rank: int) -> None:
        assert self.inside is None
        self.inside = rank
        self.switches += 1

    def leave(self, rank: int) -> None:
        assert self.inside == rank
        self.inside = None

    def switch(self, before: int, after: int) -> None:
        self.leave(before)
        self.enter(after)


@pytest.mark.parametrize("ending", ["returns", "raises", "deadlocks"])
def test_contexts_are_in_place_while_their_rank_runs_and_gone_afterwards(ending):
    context = Recorder()

    def work(rank):
        me = this_rank()
        for _ in range(3):
            assert context.inside == rank
            me.wait(after(me, 5), lambda: "a pause")
        if rank == 1 and ending == "raises":
            raise ValueError
        if ending == "deadlocks":
            me.wait(me.cluster.env.event(), lambda: "ever")

    cluster = make_cluster(3, contexts=[context])
    if ending == "returns":
        cluster.run(work)
    else:
        with pytest.raises(SimulationError):
            cluster.run(work)

    assert context.inside is None
    assert context.switches >= 9


def test_a_second_run_goes_on_where_the_first_ended():
    cluster = make_cluster(3)
    order = []

    def work(rank):
        order.append(rank)
        this_rank().charge_ps(30 - 10 * rank)
        return this_rank().now_ps()

    assert cluster.run(work) == [30, 20, 10]
    assert cluster.run(work) == [60, 40, 20]
    assert order == [0, 1, 2, 2, 1, 0]


def test_a_cluster_that_failed_refuses_to_run_again():
    cluster = make_cluster(1)
    with pytest.raises(RankError):
        cluster.run(lambda rank: 1 / 0)

    with pytest.raises(SimulationError, match="make a new Cluster"):
        cluster.run(lambda rank: rank)


def test_a_rank_cannot_run_a_cluster():
    with pytest.raises(RankError, match="outside of the ranks"):
        make_cluster(1).run(lambda rank: make_cluster(1).run(lambda inner: inner))


def test_only_ranks_that_have_a_thread_run_and_the_times_of_others_are_noted():
    cluster = make_cluster(4, threads=[2, 0])

    def work(rank):
        this_rank().charge_ps(10 * (rank + 1))
        return rank

    assert cluster.run(work) == [0, None, 2, None]
    cluster.played[3] = (7, 5)

    assert cluster.times_ps == (10, 0, 30, 7)
    assert cluster.computed_ps == (10, 0, 30, 5)
    assert [rank.rank for rank in cluster.ranks] == [0, 2]
    assert cluster.thread_of(1) is None


def test_a_rank_that_leaves_ends_its_thread_and_nothing_that_it_has_started():
    cluster = make_cluster(2)
    started = []

    def work(rank):
        me = this_rank()
        if rank == 0:
            started.append(after(me, 5, "value"))
            me.leave()
        assert me.wait(started[0], lambda: "what the other has started") == "value"
        return me.now_ps()

    assert cluster.run(work) == [None, 5]


def test_charging_advances_only_the_own_clock():
    cluster = make_cluster(3, compute={"forward": 10})

    def work(rank):
        me = this_rank()
        for _ in range(rank):
            me.charge("forward")
        me.charge("a label without a cost")
        return me.now_ps()

    assert cluster.run(work) == [0, 10, 20]
    assert cluster.times_ps == (0, 10, 20)
    assert cluster.env.now == 0


def test_time_cannot_be_charged_backwards():
    with pytest.raises(RankError, match="backwards"):
        make_cluster(1).run(lambda rank: this_rank().charge_ps(-1))


def test_waiting_returns_the_value_at_the_time_of_the_event_or_at_once_if_that_was_earlier():
    def work(rank):
        me = this_rank()
        me.charge_ps(100 * rank)
        earlier = after(me, 5, "earlier")
        value = me.wait(after(me, 7, "done"), lambda: "a pause")
        return value, me.wait(earlier, lambda: "a pause"), me.now_ps()

    assert make_cluster(3).run(work) == [("done", "earlier", 100 * rank + 7) for rank in range(3)]


def test_poll_lets_ranks_that_are_behind_go_first():
    order = []

    def work(rank):
        me = this_rank()
        me.charge_ps(10 - rank)
        me.poll(me.cluster.env.event())
        order.append(rank)

    make_cluster(3).run(work)

    assert order == [2, 1, 0]


def test_a_failed_event_raises_its_error_in_every_rank_that_waits():
    shared = []

    def work(rank):
        me = this_rank()
        if rank == 0:
            shared.append(fails(me, 3))
        with pytest.raises(OSError, match="the link is down"):
            me.wait(shared[0], lambda: "the link")
        return me.now_ps()

    assert make_cluster(3).run(work) == [3, 3, 3]


def test_a_failure_that_no_rank_waits_for_fails_the_run():
    with pytest.raises(OSError, match="the link is down"):
        make_cluster(2).run(lambda rank: fails(this_rank(), 3) and None)


def test_a_failure_within_a_failure_that_was_caught_is_not_reported_again():
    def work(rank):
        me = this_rank()

        def outer():
            yield fails(me, 3)

        with pytest.raises(OSError, match="down"):
            me.wait(me.spawn(outer()), lambda: "outer")

    make_cluster(1).run(work)


def test_waiting_in_another_thread_than_the_ranks_is_refused():
    def work(rank):
        me = this_rank()
        caught = []

        def elsewhere():
            try:
                me.wait(me.cluster.env.event(), lambda: "ever")
            except SimulationError as error:
                caught.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return caught

    assert "only in its own thread" in make_cluster(1).run(work)[0][0]
