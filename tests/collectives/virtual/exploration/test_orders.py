"""The order of a run decides who is first where time does not say it, and nothing else.

Of exploration: every order that ranks can tell apart is run, and no two that they cannot.
"""

import itertools
import os
import queue
import sys
import threading
from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline, run
from collectives.virtual.exploration import ClusterOrders
from collectives.virtual.exploration.cluster import Outcome
from collectives.virtual.exploration.search import Explored
from sim.cluster import RandomOrder
from sim.errors import OrdersError
from tests.collectives.virtual.clusters import rank_thread, train
from tests.given import switch


def store():
    return dist.distributed_c10d._get_default_store()


def number_from_a_counter(rank: int) -> int:
    dist.init_process_group()
    return int(store().add("rank", 1))


def set_own_and_look_at_other(rank: int) -> bool:
    dist.init_process_group()
    store().set(f"key {rank}", "")
    return bool(store().check([f"key {1 - rank}"]))


def sources(rank: int, messages: int = 1) -> list[int | None]:
    dist.init_process_group()
    if rank:
        for _ in range(messages):
            dist.send(torch.ones(1), 0)
        return []
    return [dist.recv(torch.ones(1)) for _ in range(messages * (dist.get_world_size() - 1))]


def look_at_a_collective(rank: int) -> bool:
    dist.init_process_group()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    seen = rank == 0 and work.is_completed()
    work.wait()
    return seen


def look_until_it_is_there(rank: int) -> int:
    dist.init_process_group()
    looks = 0
    if rank == 0:
        store().set("key", "")
    while not store().check(["key"]):
        looks += 1
    return looks


def set_after_an_unnamed_receive(rank: int) -> bytes:
    dist.init_process_group()
    if rank == 0:
        dist.recv(torch.ones(1))
        store().set("last", "0")
    else:
        dist.send(torch.ones(1), 0)
        store().set("last", "1")
    dist.barrier()
    return bytes(store().get("last"))


def no_choice(rank: int) -> list[float]:
    dist.init_process_group()
    values = torch.full((3,), float(rank))
    for _ in range(2):
        dist.all_reduce(values)
    dist.broadcast(values, 1)
    group = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(values, group=group)
    if rank == 0:
        dist.send(values, 2)
    if rank == 2:
        dist.recv(values, 0)
    dist.barrier()
    return values.tolist()


@pytest.mark.parametrize(
    ("program", "ranks", "orders", "outcomes"),
    [
        (no_choice, 3, 1, 1), (number_from_a_counter, 3, 6, 6), (set_own_and_look_at_other, 2, 3, 3),
        (sources, 4, 6, 6), (lambda rank: sources(rank, messages=2), 3, 6, 6),
        (look_at_a_collective, 3, 2, 2), (look_until_it_is_there, 3, 9, 9),
        (set_after_an_unnamed_receive, 2, 2, 2),
    ],
)  # fmt: skip
def test_each_order_that_ranks_can_tell_apart_is_run_once(program, ranks, orders, outcomes):
    explored = list(ClusterOrders(ranks).each(program))

    assert len(explored) == orders
    assert len({repr(one.outcome.shown) for one in explored}) == outcomes


def beside(thread_does, rank_does, num_threads: int = 1) -> list[threading.Thread]:
    """Do one thing while threads of the rank do another; return the threads, which have ended."""
    threads = [threading.Thread(target=thread_does) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    rank_does()
    for thread in threads:
        thread.join()
    return threads


def told_in_all_orders(work) -> set[str]:
    """Return what the only rank returns, in each order of its threads; *work* gets the list that it is."""

    def telling(rank):
        dist.init_process_group()
        told: list[Any] = []
        work(told)
        return told

    return {one.outcome.shown["what rank 0 returns"] for one in ClusterOrders(1).each(telling)}


@settings(max_examples=6, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=4))
def test_threads_of_a_rank_come_to_every_order_that_their_calls_leave_open(turns):
    def work(told):
        def tell(own):
            for number in range(turns.count(own)):
                dist.barrier()
                told.append((own, number))

        beside(lambda: tell(False), lambda: tell(True))

    merged = {
        repr([(own, order[:at].count(own)) for at, own in enumerate(order)])
        for order in set(itertools.permutations(turns))
    }
    assert told_in_all_orders(work) == merged


def test_threads_that_hold_a_lock_while_they_call_have_it_in_either_order():
    def work(told):
        lock = threading.RLock()

        def hold(name):
            with lock, lock:
                told.append(name)
                dist.barrier()
                told.append(name)

        beside(lambda: hold(2), lambda: hold(1))

    assert told_in_all_orders(work) == {"[1, 1, 2, 2]", "[2, 2, 1, 1]"}


@pytest.mark.parametrize("ordered", [True, False])
def test_threads_of_two_groups_hang_in_no_order(ordered):
    """Each sums in its own of two groups of all ranks; rank 1 has them the other way round."""

    def work(rank):
        dist.init_process_group()
        groups = [dist.new_group() for _ in range(2)][:: -1 if rank else 1]
        beside(*(lambda own=own: dist.all_reduce(torch.ones(1), group=own) for own in groups))

    if ordered:
        assert ClusterOrders(2).explore(work).parting is None
    else:
        run(work, 2)


@pytest.mark.parametrize("way", ["apart", "one after another", "prefetched"])
def test_a_hang_is_found_that_only_one_order_of_threads_shows(way):
    def work(rank):
        dist.init_process_group()
        ready: queue.Queue[int] = queue.Queue()

        def save():
            if way == "prefetched":
                ready.put(0)
            dist.broadcast(torch.ones(3), 0)

        def reduce():
            if way == "prefetched":
                ready.get()
            dist.all_reduce(torch.ones(2))

        if way == "one after another":
            beside(save, lambda: None)
            reduce()
        else:
            beside(save, reduce)

    exploration = ClusterOrders(2).explore(work)

    if way == "one after another":
        assert exploration.parting is None
        return
    assert exploration.first is not None
    assert exploration.first.outcome.error is None
    assert exploration.parting is not None
    assert "deadlock" in repr(exploration.parting.order.outcome.error)
    assert any("thread 1 at test_orders.py" in line for line in exploration.parting.lines())


def test_waits_of_threads_that_time_ends_at_one_moment_are_over_in_every_order():
    def work(rank):
        dist.init_process_group()
        threads = beside(lambda: threading.Event().wait(1.0), lambda: None, num_threads=2)
        return not any(thread.is_alive() for thread in threads)

    explored = list(ClusterOrders(2).each(work))

    assert [one.outcome.shown["what rank 1 returns"] for one in explored] == ["True"] * len(explored)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a thread sleeps")
def test_a_thread_that_blocks_outside_python_is_refused():
    read, write = os.pipe()

    def work(rank):
        dist.init_process_group()
        threading.Thread(target=os.read, args=(read, 1), daemon=True).start()
        dist.barrier()

    try:
        with pytest.raises(OrdersError, match=r"rank 0 blocks outside Python .* events or queues"):
            list(ClusterOrders(1).each(work))
    finally:
        os.write(write, b"1")
        os.close(write)
        os.close(read)


ACTIONS = st.sampled_from(["set a", "set b", "add a", "look a", "look b", "send", "any", "sum", "test"])


def program_of(actions: list[list[str]], threads: bool = False):
    """Return a program of such actions, of which each rank returns what it has seen.

    With *threads*, every second action is one of a thread of the rank.
    """

    def work(rank):
        dist.init_process_group()
        told: list[Any] = []
        own = actions[rank]
        if threads:
            beside(lambda: act(rank, own[1::2], told), lambda: act(rank, own[::2], told))
        else:
            act(rank, own, told)
        return told

    def act(rank, own, told):
        number_of_sums = min(own.count("sum") + own.count("test") for own in actions)
        sent = sum(own.count("send") for own in actions[1:])
        for action in own:
            match action.split():
                case ["set", key]:
                    store().set(key, str(rank))
                case ["add", key]:
                    told.append(store().compare_set(key, "0", str(rank + 5)))
                case ["look", key]:
                    told.append(store().check([key]) and store().get(key))
                case ["send"] if rank:
                    dist.send(torch.ones(1), 0)
                case ["any"] if rank == 0 and sent:
                    sent -= 1
                    told.append(dist.recv(torch.ones(1)))
                case ["sum" | "test" as how] if number_of_sums:
                    number_of_sums -= 1
                    work = dist.all_reduce(torch.ones(1), async_op=True)
                    told.append(how == "test" and work.is_completed())
                    work.wait()

    return work


@settings(max_examples=6, deadline=None)
@given(
    st.one_of(
        st.tuples(st.lists(st.lists(ACTIONS, max_size=3), min_size=2, max_size=3), st.just(False)),
        st.tuples(st.lists(st.lists(ACTIONS, max_size=2), min_size=2, max_size=2), st.just(True)),
    )
)
def test_no_order_at_random_comes_to_what_no_explored_one_does(drawn):
    actions, threads = drawn
    program, ranks = program_of(actions, threads), len(actions)
    looks = max(own.count("look a") + own.count("look b") for own in actions)

    explored = list(ClusterOrders(ranks, patience=max(2 * looks, 2)).each(program))  # each looks twice
    by_chance = Counter(chance_outcome(program, ranks, seed) for seed in range(5))

    assert by_chance.keys() <= {outcome_of(one) for one in explored}


def outcome_of(one: Explored[Outcome]) -> str:
    if one.outcome.error is not None:
        return "error"
    return repr([own for what, own in one.outcome.shown.items() if "returns" in what])


def chance_outcome(program, ranks: int, seed: int) -> str:
    try:
        results = run(program, ranks, order=RandomOrder(seed, at_any_speed=True)).results
    except Exception:
        return "error"
    return repr([repr(result) for result in results])


def test_more_orders_than_the_limit_are_refused_by_number():
    with pytest.raises(OrdersError, match="more than 5 orders of events"):
        list(ClusterOrders(3, limit=5).each(number_from_a_counter))


def test_a_program_that_depends_on_more_than_the_order_is_told_so():
    calls = []

    def work(rank):
        dist.init_process_group()
        calls.append(rank)
        if len(calls) % 3:
            store().add("key", 1)

    with pytest.raises(OrdersError, match="depends on more than the order of events"):
        list(ClusterOrders(2).each(work))


ORDERS = [RandomOrder(seed) for seed in range(12)]


def test_a_receive_from_any_source_and_a_counter_come_to_any_order_which_repeats():
    def seen():
        return [
            (run(sources, 3, order=order).results[0], run(number_from_a_counter, 2, order=order).results)
            for order in ORDERS
        ]

    first = seen()

    for one in zip(*first, strict=True):
        assert {tuple(order) for order in one} == {(1, 2), (2, 1)}
    assert first == seen()


def trained(rank: int) -> tuple[list[Any], int]:
    dist.init_process_group()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    batches = [torch.full((4, 8), float(rank + step)) for step in range(2)]
    train(DistributedDataParallel(model, bucket_cap_mb=0.0001), batches, lambda model: dist.barrier())
    return [parameter.tolist() for parameter in model.parameters()], rank_thread().now_ps()


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
def test_training_gives_the_same_numbers_at_the_same_times_in_every_order(transport_model):
    plain = run(trained, network=switch(3), transport_model=transport_model)

    for order in ORDERS[:3]:
        ordered = run(trained, network=switch(3), transport_model=transport_model, order=order)
        assert (ordered.results, ordered.times_ps) == (plain.results, plain.times_ps)


def asked_for_ever(rank: int, what: str) -> bool:
    """Do nothing but ask whether something has come, which takes no time."""
    dist.init_process_group()
    if what == "all_reduce":
        work = dist.all_reduce(torch.ones(1), async_op=True)
    elif rank == 0:
        work = dist.irecv(torch.ones(1))
    else:
        dist.send(torch.ones(1), 0)
        return True
    while not work.is_completed():
        pass
    return True


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("all_reduce", {"transport_model": "ideal"}), ("all_reduce", {"transport_model": "gloo"}),
        ("all_reduce", {"compute": Roofline("h100")}), ("any source", {"transport_model": "ideal"}),
        ("any source", {"transport_model": "gloo"}),
    ],
)  # fmt: skip
def test_who_only_asks_whether_something_has_come_waits_for_it(what, options, monkeypatch):
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    outcome = run(lambda rank: asked_for_ever(rank, what), network=switch(2), **options)

    assert outcome.results == [True, True]
    assert max(outcome.times_ps) > 0
