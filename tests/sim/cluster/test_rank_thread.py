"""A rank computes, waits and polls, each in its own time."""

import threading

import pytest

from sim.errors import RankError, SimulationError
from tests.sim.cluster.clusters import after, fails, make_cluster, this_rank


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


def test_poll_sees_all_up_to_and_including_the_local_time():
    def work(rank):
        me = this_rank()
        event = after(me, 10)
        seen = []
        for _ in range(3):
            me.charge_ps(5)
            seen.append(me.poll(event))
        return seen

    assert make_cluster(2).run(work) == [[False, True, True]] * 2


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
