"""Tensors of several sizes, sparse ones, and several at once, on rank threads and between processes."""

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import run_virtual
from sim.errors import RankError
from tests.collectives.torch_backend.test_torch_messages import (
    BOTH,
    SWITCH,
)


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
