"""Tests of the check that replicas stay alike."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import NotSupportedError
from collectives.virtual.parameters.record import ParameterRecord
from collectives.virtual.parameters.replicas import ReplicaCheck, check_replicas
from tests.collectives.virtual.clusters import in_group, on_gpus

RANKS, STEPS, NAMES = 3, 3, ("0.weight", "0.bias", "2.weight", "2.bias")


def _model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _train_by_hand(seed_of, is_averaged):
    """Return a training of so many steps that averages those gradients for which *is_averaged* holds."""

    def train(rank: int) -> None:
        torch.manual_seed(seed_of(rank))
        model = _model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            torch.manual_seed(100 * step + rank)
            model(torch.rand(4, 4) + rank).square().mean().backward()
            for name, parameter in model.named_parameters():
                average = parameter.grad.clone()
                dist.all_reduce(average, op=dist.ReduceOp.AVG)
                if is_averaged(rank, step, name):
                    parameter.grad.copy_(average)
            optimizer.step()
            optimizer.zero_grad()

    return train


def _checked(train, ranks: int = RANKS, **options) -> tuple[ReplicaCheck, float]:
    record = ParameterRecord()
    outcome = in_group(train, ranks, parameters=record, **options)
    return check_replicas(record), outcome.seconds


@settings(max_examples=8)
@given(rank=st.integers(0, RANKS - 1), step=st.integers(0, STEPS - 1), name=st.sampled_from(NAMES))
def test_the_rank_the_step_and_the_parameter_are_named_whose_gradient_was_not_averaged(rank, step, name):
    train = _train_by_hand(lambda rank: 0, lambda *here: here != (rank, step, name))

    check, _ = _checked(train)

    (violation,) = check.violations
    others = " and ".join(
        ("ranks " + ", ".join(str(own) for own in range(RANKS) if own != rank), f"rank {rank}")
    )
    assert f"replicas part in step {step + 1} (test_replicas.py:" in violation
    assert f"in {name}; of {name} {others} hold different values" in violation
    assert "not all of it was averaged" in violation


def test_replicas_that_stay_alike_pass_in_the_time_that_the_run_takes_anyway():
    train = _train_by_hand(lambda rank: 0, lambda *here: True)

    check, seconds = _checked(train)

    assert check.holds
    assert check.compared == (f"Sequential on ranks 0, 1, 2, {STEPS} steps",)
    assert seconds == in_group(train, RANKS).seconds


def test_models_that_began_differently_are_found_by_the_first_step():
    check, _ = _checked(_train_by_hand(lambda rank: rank, lambda *here: True))

    assert "began with different parameters (0.weight, 0.bias, 2.weight and 1 more)" in check.violations[0]


@pytest.mark.parametrize("drifts", [False, True])
def test_parameters_that_only_an_optimizer_has_are_a_model_of_their_own(drifts):
    def train(rank: int) -> None:
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.2 if drifts and rank == 1 else 0.1)
        weight.sum().backward()
        optimizer.step()

    check, _ = _checked(train)

    assert check.compared == ("SGD on ranks 0, 1, 2, 1 steps",)
    assert check.holds is not drifts


def test_optimizers_that_differ_are_told_from_gradients_that_do():
    def train(rank: int) -> None:
        model = DistributedDataParallel(_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + rank))
        model(torch.ones(4, 4)).square().mean().backward()
        optimizer.step()

    check, _ = _checked(train)

    assert (
        "gradients of 0.weight are the same: it was changed otherwise, or the optimizers differ"
        in (check.violations[0])
    )


@pytest.mark.parametrize("drifts", [False, True])
def test_of_shards_those_are_compared_that_the_mesh_replicates(drifts):
    def train(rank: int) -> None:
        torch.manual_seed(0)
        model = _model()
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if rank < 3 or not drifts else 0.2)
        model(torch.ones(4, 4) + rank).square().mean().backward()
        optimizer.step()

    check, _ = _checked(train, 4)

    assert check.compared == ("Sequential on ranks 0, 2, 1 steps", "Sequential on ranks 1, 3, 1 steps")
    assert bool(check.violations) is drifts
    assert all("rank 1 and rank 3 hold different values" in text for text in check.violations)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_shards_of_shards_are_nobodys_replicas():
    def train(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel()})
        fully_shard(model, mesh=mesh["shard"])
        model(torch.ones(4, 4))

    assert _checked(train, 4)[0] == ReplicaCheck((), ())


def test_without_values_nothing_can_be_compared():
    with pytest.raises(NotSupportedError, match="run with data"):
        on_gpus(lambda rank: None, 2, fake=True, parameters=ParameterRecord())
