"""Threads of a rank that call beside each other: each on its own group, and several on one."""

import os
import queue
import signal
import threading
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist

from tests.distributed.pool import Failure
from tests.distributed.threads import Caller, group_over, in_threads
from tests.waiting import until

pytestmark = pytest.mark.distributed

LONG = 200.0  # seconds for many calls on a machine that is busy with other things

CARRIERS = pytest.mark.parametrize("carrier", ["shm", "gloo"])
SHM = pytest.mark.parametrize("carrier", ["shm", pytest.param("gloo", marks=pytest.mark.costly)])
GLOO = pytest.mark.parametrize("carrier", [pytest.param("shm", marks=pytest.mark.costly), "gloo"])
"""What also holds of the other is tried there where there is more time."""


def threads_on_groups(rank, world_size, carrier, num_threads, num_calls):
    groups = [group_over(carrier) for _ in range(num_threads)]
    callers = [Caller(group, seed, num_calls) for seed, group in enumerate(groups)]
    return in_threads([caller.run for caller in callers])


def many(world_size, num_threads):
    """Ten thousand calls in all."""
    return pytest.param(world_size, num_threads, 1250 // num_threads, marks=pytest.mark.slow)


@CARRIERS
@pytest.mark.parametrize(
    ("world_size", "num_threads", "num_calls"),
    [(2, 4, 24), (3, 2, 24), many(2, 2), many(2, 5), many(3, 4), many(4, 3)],
)
def test_threads_each_on_a_group_come_to_the_bits_that_gloo_comes_to(
    pool, carrier, world_size, num_threads, num_calls
):
    arguments = num_threads, num_calls

    expected = pool.run(threads_on_groups, world_size, "gloo of torch", *arguments, timeout=LONG)

    assert pool.run(threads_on_groups, world_size, carrier, *arguments, timeout=LONG) == expected
    assert all(len(digest) == 64 for of_rank in expected for digest in of_rank)


def messages_pass_under_their_own_tags_beside_collectives_of_the_group(rank, world_size, carrier):
    group = group_over(carrier)
    peer, num_rounds = 1 - rank, 30

    def messages(tag):
        """Echo numbers of more and more elements; the ranks take turns to begin."""
        wrong = 0
        for number in range(num_rounds):
            sent, received = torch.full((1 + 999 * tag * number,), 1.0 * number), torch.empty(1)
            received = torch.empty_like(sent)
            if tag % 2 == rank:
                dist.send(sent, peer, group, tag)
                dist.recv(received, peer, group, tag)
            else:
                dist.recv(received, peer, group, tag)
                dist.send(received + 1, peer, group, tag)
            wrong += not (received == number + (tag % 2 == rank)).all()
        return wrong

    def collectives():
        wrong = 0
        for number in range(num_rounds):
            tensor = torch.full((500 * number,), rank + 1.0)
            dist.all_reduce(tensor, group=group)
            wrong += not (tensor == 3).all()
        return wrong

    return in_threads([*(partial(messages, tag) for tag in range(4)), collectives])


def received_from_any(rank, world_size, carrier):
    group = group_over(carrier)
    if rank == 1:
        for number in range(40):
            dist.send(torch.full((3,), 1.0 * number), 0, group)
        return []

    def receive():
        values = []
        for _ in range(20):
            tensor = torch.empty(3)
            dist.recv(tensor, None, group)
            values.append(tensor.unique().item())
        return values

    first, second = in_threads([receive, receive])
    assert first == sorted(first)
    assert second == sorted(second)
    return sorted(first + second)


@GLOO
def test_threads_that_receive_from_any_source_get_every_message_once(pool, carrier):
    assert pool.run(received_from_any, 2, carrier)[0] == [float(number) for number in range(40)]


def works_are_waited_for_in_other_threads_than_those_that_started_them(rank, world_size, carrier):
    group = group_over(carrier)
    handed_over = queue.Queue()
    tensors = [torch.full((1 + 7000 * number,), rank + 1.0) for number in range(30)]

    def start():
        for tensor in tensors:
            work = dist.all_reduce(tensor, group=group, async_op=True)
            for _ in range(2):  # for two threads, which may come to wait for the same
                handed_over.put((work, tensor))
        for _ in range(2):
            handed_over.put(None)

    def wait():
        totals = []
        while (item := handed_over.get()) is not None:
            work, tensor = item
            work.wait()
            totals.append(tensor.unique().item())
        return totals

    _, *totals = in_threads([start, wait, wait])
    return sorted(total for of_thread in totals for total in of_thread)


def queue_of(group):
    return group.communicator(torch.device("cpu")).launcher.transport.queue


def what_a_thread_starts_and_leaves_goes_on_while_another_one_waits(rank, world_size, carrier):
    waited, left = group_over(carrier, 8), group_over(carrier, 8)
    first, second = torch.full((5000,), rank + 1.0), torch.full((5000,), rank + 1.0)
    if rank == 1:
        dist.all_reduce(second, group=left)
        dist.all_reduce(first, group=waited)
    else:
        thread = threading.Thread(target=dist.all_reduce, args=(first,), kwargs={"group": waited})
        thread.start()
        until(lambda: queue_of(waited)._driving, "the thread to drive")
        work = dist.all_reduce(second, group=left, async_op=True)
        thread.join()
        work.wait()
    return [first.unique().item(), second.unique().item()]


def a_message_expected_on_one_group_is_taken_while_the_rank_waits_in_another(rank, world_size, carrier):
    waited, left = group_over(carrier, 8), group_over(carrier, 8)
    received, total = torch.zeros(1_000_000), torch.full((5000,), rank + 1.0)
    if rank == 1:
        dist.send(received + 7, 0, left)
        dist.all_reduce(total, group=waited)
    else:
        work = dist.irecv(received, 1, left)
        dist.all_reduce(total, group=waited)
        work.wait()
    return [received.unique().item(), total.unique().item()]


COMES_TO = {
    messages_pass_under_their_own_tags_beside_collectives_of_the_group: ("", [[0] * 5] * 2),
    works_are_waited_for_in_other_threads_than_those_that_started_them: ("gloo", [[3.0] * 60] * 2),
    what_a_thread_starts_and_leaves_goes_on_while_another_one_waits: ("shm", [[3.0, 3.0]] * 2),
    a_message_expected_on_one_group_is_taken_while_the_rank_waits_in_another: ("gloo", [[7, 3], [0, 3]]),
}
"""Of what threads do: the carrier on which it is tried where there is more time, and what ranks come to."""


@pytest.mark.parametrize(
    ("work", "carrier"),
    [
        pytest.param(work, carrier, marks=pytest.mark.costly if carrier == later else ())
        for work, (later, _) in COMES_TO.items()
        for carrier in ("shm", "gloo")
    ],
)
def test_threads_beside_each_other_come_to_what_they_must(pool, work, carrier):
    assert pool.run(work, 2, carrier) == COMES_TO[work][1]


def one_thread_missing(rank, world_size, carrier):
    missed, other = group_over(carrier, 3), group_over(carrier, 60)
    store = dist.distributed_c10d._get_default_store()

    def misses():
        if rank == 1:
            store.wait(["given up"])
            return ""
        began = time.monotonic()
        try:
            dist.all_reduce(torch.ones(1000), group=missed)
        except RuntimeError as error:
            assert time.monotonic() - began < 30
            return str(error)
        finally:
            store.set("given up", "")
        return "no error"

    return in_threads([misses, Caller(other, 0, 60).run])


@GLOO
def test_a_thread_whose_peer_does_not_call_names_it_in_time_and_another_thread_goes_on(pool, carrier):
    (said, digest), (_, other_digest) = pool.run(one_thread_missing, 2, carrier)

    assert "rank 1 did not take part" in said
    assert len(digest) == len(other_digest) == 64


def impatient(rank, world_size, carrier):
    group = group_over(carrier, 40)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        dist.barrier(group)
        store.wait(["given up"])
        return []
    dist.barrier(group)
    work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
    began = time.monotonic()

    def wait_long():
        work.wait()

    def wait_briefly():
        until(lambda: queue_of(group)._driving, "the other thread to drive")
        work.wait(timedelta(seconds=1))

    said = in_threads([wait_long, wait_briefly])
    store.set("given up", "")
    return [*said, time.monotonic() - began]


@SHM
def test_a_wait_ends_in_time_while_another_thread_drives_what_it_waits_for(pool, carrier):
    *said, seconds = pool.run(impatient, 2, carrier)[0]

    assert all("rank 1 did not take part" in text for text in said)
    assert seconds < 30


def killed_beside_threads(rank, world_size, carrier):
    groups = [group_over(carrier, 40) for _ in range(3)]
    for group in groups:
        dist.barrier(group)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    said = in_threads([partial(dist.all_reduce, torch.ones(2000), group=group) for group in groups])
    return [*said, time.monotonic() - began]


@GLOO
def test_every_thread_of_a_survivor_names_the_rank_that_was_killed(pool, carrier):
    outcomes = pool.run_outcomes(killed_beside_threads, 3, carrier)

    assert isinstance(outcomes[1], Failure)
    for *said, seconds in (outcomes[0], outcomes[2]):
        assert all("rank 1" in text and "did not take part" in text for text in said), said
        assert seconds < 30


def failing_beside(rank, world_size, carrier):
    right, wrong = group_over(carrier, 20), group_over(carrier, 3)
    work = dist.all_reduce(torch.ones(1000 + rank), group=wrong, async_op=True)
    waited = [Caller(right, 1, 40).run, work.wait]
    return in_threads(waited)


@SHM
def test_a_failure_of_one_group_is_raised_to_who_waits_for_it_and_to_nobody_else(pool, carrier):
    for digest, said in pool.run(failing_beside, 2, carrier):
        assert len(digest) == 64
        assert said.startswith("MismatchError: ")


def groups_made_in_a_thread(rank, world_size, carrier):
    trained = group_over(carrier)

    def evaluate():
        total = 0.0
        for number in range(4):
            tensor = torch.full((100,), rank + number * 1.0)
            dist.all_reduce(tensor, group=group_over(carrier))
            total += tensor.unique().item()
        return total

    return in_threads([Caller(trained, 2, 100).run, evaluate])


@GLOO
def test_a_thread_makes_groups_while_another_one_calls(pool, carrier):
    (digest, total), (other_digest, other_total) = pool.run(groups_made_in_a_thread, 2, carrier)

    assert total == other_total == 1 + 3 + 5 + 7
    assert len(digest) == len(other_digest) == 64


def trained_beside_checkpoints(rank, world_size, carrier):
    training, saving = group_over(carrier), group_over(carrier)
    steps = queue.Queue()
    saved = []

    def save():
        while (state := steps.get()) is not None:
            states = [None] * world_size
            dist.all_gather_object(states, state, saving)
            saved.append(states)

    thread = threading.Thread(target=save, daemon=True)
    thread.start()
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)).double()
    model = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=0.001, process_group=training)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    for _ in range(12):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        steps.put([parameter.tolist() for parameter in network.parameters()])
    steps.put(None)
    thread.join(30)
    return [parameter.tolist() for parameter in network.parameters()], saved


@SHM
def test_torchs_ddp_trains_as_over_gloo_beside_a_thread_that_writes_checkpoints(pool, carrier):
    """Of two numbers there is one sum, so the parameters are equal to the bit."""
    expected = pool.run(trained_beside_checkpoints, 2, "gloo of torch")

    assert len(expected[0][1]) == 12
    assert pool.run(trained_beside_checkpoints, 2, carrier) == expected
