"""Tests of the comparison of one training on different numbers of ranks."""

import math

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from collectives.virtual import run
from collectives.virtual.parameters.comparison import Comparison, compare
from collectives.virtual.parameters.record import ParameterRecord

STEPS, TOLERANCE = 4, 1e-4


def _train(
    rank: int, *, weight: float = 1, from_step: int = 0, sharded: bool = False, only: int = -1
) -> None:
    """Train on one global batch a step; from a step on, gradients are *weight* times what they should be."""
    dist.init_process_group()
    world = dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    if sharded:
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(step)
        batch = torch.randn(8, 6).chunk(world)[rank]
        model(batch).square().mean().backward()
        for parameter in model.parameters():
            if not sharded:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            if step >= from_step and world > 1 and only in (-1, rank):
                parameter.grad.mul_(weight)
        optimizer.step()
        optimizer.zero_grad()


def _compared(ranks: int, **mistake) -> Comparison:
    records = []
    for count in (1, ranks):
        record = ParameterRecord(kept_steps=STEPS)
        run(lambda rank: _train(rank, **mistake), count, parameters=record)
        records.append(record)
    return compare(*records, TOLERANCE)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_global_batch_that_ranks_share_is_one_training(ranks, sharded):
    comparison = _compared(ranks, sharded=sharded)

    assert comparison.are_same
    assert comparison.compared == (4, STEPS)
    assert 0 < comparison.largest.relative < TOLERANCE


def _train_divided(rank: int, tensor: int) -> None:
    """Train with so many ranks for each tensor, by FSDP2 across them."""
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // tensor, tensor), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Tanh()
    )
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(step)
        batch = torch.randn(8, 6).chunk(mesh["dp"].size())[mesh["dp"].get_local_rank()]
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("tensor", [2, 4])
def test_shards_in_strides_of_two_dimensions_of_a_mesh_are_put_together(tensor):
    records = [ParameterRecord(kept_steps=STEPS) for _ in range(2)]
    for record, width in zip(records, (1, tensor), strict=True):
        run(lambda rank, width=width: _train_divided(rank, width), 4, parameters=record)

    comparison = compare(*records, TOLERANCE)

    assert comparison.are_same
    assert comparison.compared == (4, STEPS)
    assert comparison.left_out == ()


@settings(max_examples=6)
@given(weight=st.sampled_from([2.0, 0.5, 1.5]), step=st.integers(0, STEPS - 1), sharded=st.booleans())
def test_the_step_and_the_factor_are_named_where_gradients_are_not_those_of_the_whole_batch(
    weight, step, sharded
):
    parting = _compared(2, weight=weight, from_step=step, sharded=sharded).parting

    assert parting.step == step + 1
    assert parting.is_gradient
    assert parting.cause == f"its gradient there is {weight:.3g} times the first run's"
    assert parting.place.startswith("test_comparison.py:")


def test_replicas_that_part_are_no_same_training():
    comparison = _compared(2, weight=2.0, from_step=2, only=1)

    assert comparison.parting.step == 3
    assert math.isinf(comparison.parting.relative)
    assert "--check replicas" in comparison.parting.cause


def test_what_is_not_finite_is_not_the_same():
    assert not _compared(2, weight=math.nan).are_same
