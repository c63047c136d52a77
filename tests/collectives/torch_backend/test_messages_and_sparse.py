"""Messages of any source, tensors of several sizes, and sparse ones, on threads and processes."""

from __future__ import annotations

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


@pytest.mark.costly
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


def gathered(rank, group, everybody):
    tensors = [torch.empty(peer + 1, 2) for peer in range(4)]
    dist.all_gather(tensors, torch.full((rank + 1, 2), float(rank)), group=everybody)
    return tensors


@BOTH
def test_tensors_of_several_sizes_are_gathered(run, pool):
    for tensors in run(gathered, pool):
        assert [tensor.tolist() for tensor in tensors] == [[[float(p)] * 2] * (p + 1) for p in range(4)]


def reduce_scattered(rank, group, everybody):
    output = torch.empty(rank + 1)
    given = [torch.full((peer + 1,), 10.0**rank) for peer in range(4)]
    dist.reduce_scatter(output, given, group=everybody)
    return output.tolist(), [tensor.tolist() for tensor in given]


@BOTH
def test_tensors_of_several_sizes_are_reduce_scattered_and_stay_as_they_are(run, pool):
    for rank, (output, given) in enumerate(run(reduce_scattered, pool)):
        assert output == [1111.0] * (rank + 1)
        assert given == [[10.0**rank] * (peer + 1) for peer in range(4)]


def gathered_at_once(rank, group, everybody):
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(4)]
    everybody.allgather_coalesced(lists, [torch.full((2,), 1.0 * rank), torch.full((3,), -1.0 * rank)]).wait()
    return [[tensor.tolist() for tensor in tensors] for tensors in lists]


@BOTH
def test_several_tensors_of_each_rank_are_gathered_at_once(run, pool):
    expected = [[[1.0 * peer] * 2, [-1.0 * peer] * 3] for peer in range(4)]

    assert run(gathered_at_once, pool) == [expected] * 4


def sparse_sums(rank, group, everybody):
    dense = torch.zeros(5, 2)
    if rank < 3:
        dense[0] = torch.tensor([1.0, 2.0])
        dense[rank] += torch.tensor([10.0 * rank, 0.5])
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor, group=everybody)
    return tensor.to_dense()


@BOTH
def test_sparse_tensors_are_summed_though_every_rank_holds_other_elements(run, pool):
    expected = torch.tensor([[3.0, 6.5], [10.0, 0.5], [20.0, 0.5], [0.0, 0.0], [0.0, 0.0]])

    for total in run(sparse_sums, pool):
        assert torch.equal(total, expected)


def test_only_a_sum_of_sparse_tensors_is_carried():
    def work(rank):
        dist.init_process_group("testbed")
        dist.all_reduce(torch.eye(2).to_sparse(), op=dist.ReduceOp.MAX)

    with pytest.raises(RankError, match="make it dense"):
        run_virtual(work, SWITCH)


def test_torchs_ddp_averages_sparse_gradients():
    def work(rank):
        dist.init_process_group("testbed")
        module = torch.nn.Embedding(4, 2, sparse=True)
        model = torch.nn.parallel.DistributedDataParallel(module)
        (model(torch.tensor([rank, 3])).sum() * (rank + 1)).backward()
        return module.weight.grad.to_dense()[:, 0].tolist()

    assert run_virtual(work, SWITCH).results == [[0.25, 0.5, 0.75, (1 + 2 + 3 + 2 * 4) / 4]] * 4
