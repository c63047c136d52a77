"""Tests of the check that replicas stay alike."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import NotSupportedError
from collectives.virtual.parameters.record import ParameterRecord
from collectives.virtual.parameters.replicas import ReplicaCheck, check_replicas
from tests.collectives.virtual.clusters import in_group, on_gpus

CPU = torch.device("cpu")
RANKS, STEPS, NAMES = 3, 3, ("0.weight", "0.bias", "2.weight", "2.bias")


def _model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _train_by_hand(seed_of, is_averaged):
    """Return a training of so many steps that averages those gradients for which *is_averaged* holds."""

    def train(rank):
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
    def train(rank):
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.2 if drifts and rank == 1 else 0.1)
        weight.sum().backward()
        optimizer.step()

    check, _ = _checked(train)

    assert check.compared == ("SGD on ranks 0, 1, 2, 1 steps",)
    assert check.holds is not drifts


def test_optimizers_that_differ_are_told_from_gradients_that_do():
    def train(rank):
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
    def train(rank):
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
    def train(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel()})
        fully_shard(model, mesh=mesh["shard"])
        model(torch.ones(4, 4))

    check, _ = _checked(train, 4)

    assert check.holds
    assert check == ReplicaCheck(
        (), (), ("Sequential on ranks 0, 1, 2, 3: shards, of which no two ranks hold the same",)
    )


class _Counting(torch.nn.Module):
    """A model with a buffer that follows its input, and the running statistics of a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, batch):
        self.mean += batch[0]
        return self.layers(batch)


@pytest.mark.parametrize("broadcasts", [False, True])
@pytest.mark.parametrize("drifts", [False, True])
def test_a_buffer_that_nobody_broadcasts_stays_alike_but_for_statistics_of_norms(drifts, broadcasts):
    def train(rank):
        model = DistributedDataParallel(_Counting(), forward_sync_buffers=broadcasts)
        for step in range(2):
            torch.manual_seed(rank)
            batch = torch.rand(4, 4)
            batch[0] = step + rank * drifts
            model(batch).sum().backward()

    check, _ = _checked(train, 2)

    said = "in buffer mean; of buffer mean rank 0 and rank 1 hold different values"
    assert [said in text for text in check.violations] == ([True] if drifts and not broadcasts else [])
    assert any("layers.1.running_mean" in text for text in check.not_compared)


@pytest.mark.parametrize("drifts", [False, True])
def test_what_an_optimizer_keeps_stays_alike_where_parameters_do(drifts):
    def train(rank):
        model = DistributedDataParallel(torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        if drifts and rank == 1:
            optimizer.state[model.module.bias]["momentum_buffer"] *= 2

    check, _ = _checked(train, 2)

    said = "of momentum_buffer of bias rank 0 and rank 1 hold different values"
    assert [said in text for text in check.violations] == [True] * drifts


@pytest.mark.parametrize("kind", [torch.amp.GradScaler, ShardedGradScaler])
def test_a_scaler_that_sees_the_gradients_of_one_shard_alone_parts_from_the_others(kind):
    def train(rank):
        torch.manual_seed(0)
        model = FullyShardedDataParallel(torch.nn.Linear(4, 4, bias=False), device_id=CPU)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.0), kind("cpu", init_scale=8.0)
        for step in range(3):
            scaler.scale(model(torch.ones(1, 4)).sum()).backward()
            if step == 1 and rank == 1:
                model.module._flat_param.grad[0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    check, _ = _checked(train, 2)

    apart = any("scale of the GradScaler" in text for text in check.violations)
    assert apart is (kind is torch.amp.GradScaler)


@pytest.mark.parametrize("original", [False, True])
@pytest.mark.parametrize("drifts", [False, True])
def test_of_shards_of_fsdp1_those_are_compared_that_nodes_hold_alike(drifts, original):
    def train(rank):
        torch.manual_seed(0)
        model = FullyShardedDataParallel(
            torch.nn.Linear(4, 4, bias=False),
            device_mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            use_orig_params=original,
            device_id=CPU,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if drifts and rank == 3 else 0.1)
        model(torch.ones(4, 4)).sum().backward()
        optimizer.step()

    check, _ = _checked(train, 4)

    assert check.compared == ("Linear on ranks 0, 2, 1 steps", "Linear on ranks 1, 3, 1 steps")
    assert ["rank 1 and rank 3 hold different values" in text for text in check.violations] == [True] * drifts


@pytest.mark.parametrize("original", [False, True])
def test_shards_of_fsdp1_are_nobodys_replicas_though_their_gradients_are_alike(original):
    def train(rank):
        torch.manual_seed(0)
        model = FullyShardedDataParallel(
            torch.nn.Linear(4, 5, bias=False), use_orig_params=original, device_id=CPU
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    check, _ = _checked(train)

    assert check.holds
    assert (
        check.text
        == "Not compared: Linear on ranks 0, 1, 2: FSDP1 shards, of which no two ranks hold the same"
    )


def test_without_values_nothing_can_be_compared():
    with pytest.raises(NotSupportedError, match="run with data"):
        on_gpus(lambda rank: None, 2, fake=True, parameters=ParameterRecord())
