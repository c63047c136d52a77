"""Messages whose receiver names no source, messages of a rank to itself, and barriers that do not wait."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import run_virtual
from sim.errors import RankError
from tests.collectives.torch_backend.test_torch_messages import (
    BOTH,
    SWITCH,
)


def received_by_rank_0(rank, group, everybody):
    if rank > 0:
        for number in range(2):
            dist.send(torch.tensor([rank, number], dtype=torch.uint8), 0, everybody)
        return None
    messages = []
    for _ in range(6):
        tensor = torch.zeros(2, dtype=torch.uint8)
        source = dist.recv(tensor, group=everybody)
        messages.append((source, *tensor.tolist()))
    return messages


@BOTH
def test_messages_of_any_source_come_once_in_the_order_of_their_source_and_name_it(run, pool):
    messages = run(received_by_rank_0, pool)[0]

    assert sorted(messages) == [(peer, peer, number) for peer in (1, 2, 3) for number in (0, 1)]
    assert all(messages.index((peer, peer, 0)) < messages.index((peer, peer, 1)) for peer in (1, 2, 3))


def test_in_virtual_time_the_earliest_message_comes_first_and_of_several_that_of_the_least_rank():
    def work(rank):
        dist.init_process_group("testbed")
        return received_by_rank_0(rank, None, dist.group.WORLD)

    runs = [run_virtual(work, SWITCH).results[0] for _ in range(2)]

    assert runs[0] == runs[1]
    assert [source for source, *_ in runs[0][:3]] == [1, 2, 3]


def named_after_unnamed(rank, group, everybody):
    if rank > 0:
        dist.send(torch.full((3,), float(rank)), 0, everybody, tag=5)
        return None
    first = torch.zeros(3)
    source = dist.recv(first, group=everybody, tag=5)
    others = {peer: torch.zeros(3) for peer in {1, 2, 3} - {source}}
    for peer, tensor in others.items():
        dist.recv(tensor, peer, everybody, tag=5)
    return {source: first, **others}


@BOTH
def test_a_source_can_be_named_after_none_was(run, pool):
    tensors = run(named_after_unnamed, pool)[0]

    assert {peer: tensor.tolist() for peer, tensor in tensors.items()} == {
        p: [float(p)] * 3 for p in (1, 2, 3)
    }


def to_itself(rank, group, everybody):
    received = torch.zeros(2)
    calls = [dist.P2POp(dist.irecv, received, rank, everybody)]
    calls.append(dist.P2POp(dist.isend, torch.full((2,), float(rank)), rank, everybody))
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return received.tolist()


@BOTH
def test_a_rank_sends_to_itself(run, pool):
    assert run(to_itself, pool) == [[float(rank)] * 2 for rank in range(4)]


def test_a_wait_for_a_message_to_itself_that_is_not_sent_says_so():
    def work(rank):
        dist.init_process_group("testbed")
        dist.irecv(torch.zeros(1), rank).wait()

    with pytest.raises(RankError, match="has only one side yet"):
        run_virtual(work, SWITCH)


def barrier_before_a_message(rank, group, everybody):
    token = torch.zeros(1)
    if rank == 0:
        work = dist.barrier(everybody, async_op=True)
        dist.send(token, 1, everybody)
        work.wait()
    else:
        if rank == 1:
            dist.recv(token, 0, everybody)
        dist.barrier(everybody)
    return True


@BOTH
def test_an_asynchronous_barrier_does_not_wait_at_its_call(run, pool):
    assert run(barrier_before_a_message, pool) == [True] * 4


def missing_at_a_barrier(rank, group, everybody):
    said = None
    if rank != 1:
        try:
            everybody.monitored_barrier(timedelta(seconds=0.5), rank == 0)
        except RuntimeError as error:
            said = str(error)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=everybody)
    return said, tensor.item()


@BOTH
def test_a_monitored_barrier_names_who_is_missing_and_leaves_the_group_usable(run, pool):
    (first, _), second, (third, _), _ = results = run(missing_at_a_barrier, pool)

    assert first == "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 500 ms"
    assert second == (None, 4.0)
    assert "Rank 2 successfully reached monitoredBarrier, but received errors" in third
    assert [total for _, total in results] == [4.0] * 4


def versions(rank, group, everybody):
    reduced, whole, part = torch.ones(4), torch.ones(8), torch.ones(2)
    dist.all_reduce(reduced, group=everybody)
    dist.broadcast(reduced, 0, everybody)
    everybody.all_gather_single(whole, part).wait()
    return reduced._version, whole._version


@BOTH
def test_autograd_takes_no_result_for_a_change(run, pool):
    assert run(versions, pool) == [(0, 0)] * 4
