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
    rank: int, *, weight: float = 1, from_step: int = 0, tensor: int | None = None, only: int = -1
) -> None:
    """Train on one global batch a step; from a step on, gradients are *weight* times what they should be.

    Several ranks average gradients, or, with *tensor*, divide the model among so many ranks for each tensor
    and by FSDP2 across them.
    """
    dist.init_process_group()
    world = dist.get_world_size()
    torch.manual_seed(0)
    tanh = torch.nn.Tanh()
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), tanh, torch.nn.Linear(8, 2), tanh)
    share, shares = rank, world
    if tensor is not None and world > 1:
        mesh = init_device_mesh("cpu", (world // tensor, tensor), mesh_dim_names=("dp", "tp"))
        share, shares = mesh["dp"].get_local_rank(), mesh["dp"].size()
        if tensor > 1:
            parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        torch.manual_seed(step)
        model(torch.randn(8, 6).chunk(shares)[share]).square().mean().backward()
        for parameter in model.parameters():
            if tensor is None:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            if step >= from_step and world > 1 and only in (-1, rank):
                parameter.grad.mul_(weight)
        optimizer.step()
        optimizer.zero_grad()


def _compared(ranks: int, **how) -> Comparison:
    records = []
    for count in (1, ranks):
        record = ParameterRecord(kept_steps=STEPS)
        run(lambda rank: _train(rank, **how), count, parameters=record)
        records.append(record)
    return compare(*records, TOLERANCE)


@pytest.mark.parametrize("ranks_and_tensor", [(2, None), (4, None), (2, 1), (4, 1), (4, 2), (4, 4)])
def test_a_global_batch_that_ranks_share_is_one_training(ranks_and_tensor):
    ranks, tensor = ranks_and_tensor

    comparison = _compared(ranks, tensor=tensor)

    assert comparison.are_same
    assert comparison.compared == (4, STEPS)
    assert comparison.left_out == ()
    assert 0 < comparison.largest.relative < TOLERANCE


@settings(max_examples=6)
@given(
    weight=st.sampled_from([2.0, 0.5, 1.5]), step=st.integers(0, STEPS - 1), tensor=st.sampled_from([None, 1])
)
def test_the_step_and_the_factor_are_named_where_gradients_are_not_those_of_the_whole_batch(
    weight, step, tensor
):
    parting = _compared(2, weight=weight, from_step=step, tensor=tensor).parting

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
