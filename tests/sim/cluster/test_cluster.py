"""Rank threads: one at a time, in order of virtual time, and never a hang."""

import signal
import threading
import time
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster import Cluster, RankUnwound
from sim.errors import DeadlockError, RankError, SimulationError
from sim.topology import Topology


def make_cluster(num_ranks, **kwargs):
    topology = Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")
    return Cluster(topology, **kwargs)


def after(rank_thread, delay_ps, value=None):
    """A process of the rank that fires *delay_ps* after the rank's local time."""

    def pause():
        yield rank_thread.cluster.env.timeout(delay_ps)
        return value

    return rank_thread.spawn(pause())


def no_rank_threads():
    return not any(thread.name.startswith("rank ") for thread in threading.enumerate())


def test_results_come_in_order_of_rank():
    assert make_cluster(5).run(lambda rank: rank * rank) == [0, 1, 4, 9, 16]


def test_a_thread_that_is_no_rank_has_no_current_rank():
    assert Cluster.current() is None
    assert make_cluster(2).run(lambda rank: Cluster.current().rank) == [0, 1]


def test_charging_advances_only_the_own_clock():
    cluster = make_cluster(3, compute={"forward": 10})

    def work(rank):
        me = Cluster.current()
        for _ in range(rank):
            me.charge("forward")
        me.charge("a label without a cost")
        return me.now_ps()

    assert cluster.run(work) == [0, 10, 20]
    assert cluster.times_ps == (0, 10, 20)
    assert cluster.env.now == 0


def test_time_cannot_be_charged_backwards():
    with pytest.raises(RankError, match="backwards"):
        make_cluster(1).run(lambda rank: Cluster.current().charge_ps(-1))


def test_waiting_returns_the_value_at_the_time_of_the_event():
    def work(rank):
        me = Cluster.current()
        me.charge_ps(100 * rank)
        value = me.wait(after(me, 7, "done"), lambda: "a pause")
        return value, me.now_ps()

    assert make_cluster(3).run(work) == [("done", 7), ("done", 107), ("done", 207)]


def test_waiting_for_what_happened_earlier_takes_no_time():
    def work(rank):
        me = Cluster.current()
        event = after(me, 5)
        me.charge_ps(50)
        me.wait(event, lambda: "a pause")
        return me.now_ps()

    assert make_cluster(2).run(work) == [50, 50]


def test_poll_sees_all_up_to_and_including_the_local_time():
    def work(rank):
        me = Cluster.current()
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
        me = Cluster.current()
        me.charge_ps(10 - rank)
        me.poll(me.cluster.env.event())
        order.append(rank)

    make_cluster(3).run(work)

    assert order == [2, 1, 0]


def test_a_failed_event_raises_its_error_in_every_rank_that_waits():
    shared = {}

    def work(rank):
        me = Cluster.current()
        if rank == 0:

            def fail():
                yield me.cluster.env.timeout(3)
                raise OSError("the link is down")

            shared["event"] = me.spawn(fail())
        with pytest.raises(OSError, match="the link is down"):
            me.wait(shared["event"], lambda: "the link")
        return me.now_ps()

    assert make_cluster(3).run(work) == [3, 3, 3]


def test_a_failure_that_no_rank_waits_for_fails_the_run():
    def work(rank):
        me = Cluster.current()

        def fail():
            yield me.cluster.env.timeout(3)
            raise OSError("the link is down")

        me.spawn(fail())

    with pytest.raises(OSError, match="the link is down"):
        make_cluster(2).run(work)


def test_a_failure_within_a_failure_that_was_caught_is_not_reported_again():
    def work(rank):
        me = Cluster.current()

        def inner():
            yield me.cluster.env.timeout(3)
            raise OSError("the link is down")

        def outer():
            yield me.spawn(inner())

        with pytest.raises(OSError, match="down"):
            me.wait(me.spawn(outer()), lambda: "outer")

    make_cluster(1).run(work)


@given(st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=5))
def test_whatever_ranks_do_runs_in_order_of_time_and_repeats(delays_of_ranks):
    def observe():
        log = []

        def work(rank):
            me = Cluster.current()
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


def test_exactly_one_rank_runs_at_any_time():
    running = []

    def work(rank):
        me = Cluster.current()
        for _ in range(20):
            running.append(rank)
            time.sleep(0.0005)
            assert running == [rank]
            running.pop()
            me.wait(after(me, 1), lambda: "a pause")

    make_cluster(4).run(work)


def test_a_message_takes_the_networks_time():
    def work(rank):
        me = Cluster.current()
        me.charge_ps(1000)

        def send():
            yield me.cluster.network.transfer(0, 1, 125)

        if rank == 0:
            me.wait(me.spawn(send()), lambda: "a message")
        return me.now_ps()

    assert make_cluster(2).run(work) == [1000 + 4_000_000 + 10_000, 1000]


def test_ranks_that_wait_for_nobody_are_named_with_what_they_wait_for():
    def work(rank):
        me = Cluster.current()
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
    assert no_rank_threads()


def test_an_error_names_its_rank_and_shows_the_ranks_own_traceback():
    unwound = []

    def deep_inside():
        raise ValueError("bad label")

    def work(rank):
        me = Cluster.current()
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
    assert no_rank_threads()


def test_a_rank_that_swallows_its_end_meets_it_again_at_the_next_wait():
    def work(rank):
        me = Cluster.current()
        if rank == 1:
            raise ValueError
        try:
            me.wait(me.cluster.env.event(), lambda: "ever")
        except BaseException:
            me.poll(me.cluster.env.event())

    with pytest.raises(RankError):
        make_cluster(2).run(work)
    assert no_rank_threads()


class Recorder:
    """A context that knows which rank is in place."""

    def __init__(self):
        self.inside = None
        self.switches = 0

    def enter(self, rank):
        assert self.inside is None
        self.inside = rank
        self.switches += 1

    def leave(self, rank):
        assert self.inside == rank
        self.inside = None

    def switch(self, before, after):
        self.leave(before)
        self.enter(after)


@pytest.mark.parametrize("ending", ["returns", "raises", "deadlocks"])
def test_contexts_are_in_place_while_their_rank_runs_and_gone_afterwards(ending):
    context = Recorder()

    def work(rank):
        me = Cluster.current()
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
        Cluster.current().charge_ps(30 - 10 * rank)
        return Cluster.current().now_ps()

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


def test_waiting_in_another_thread_than_the_ranks_is_refused():
    def work(rank):
        me = Cluster.current()
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


@pytest.mark.parametrize("busy", [True, False], ids=["in a computing rank", "in a waiting rank"])
def test_an_interrupt_stops_promptly_and_leaves_nothing_behind(busy):
    def work(rank):
        me = Cluster.current()
        if rank == 0:
            main = threading.main_thread().ident
            threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
        while True:
            if not busy:
                me.wait(after(me, 5), lambda: "a pause")

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        make_cluster(3).run(work)

    assert time.monotonic() - began < 3
    assert no_rank_threads()
