"""Tests of the check that replicas stay alike."""

import itertools
from functools import partial

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
from tests.collectives.virtual.clusters import in_group, on_gpus, train

CPU = torch.device("cpu")
RANKS, STEPS, NAMES = 3, 3, ("0.weight", "0.bias", "2.weight", "2.bias")


def _model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _train_by_hand(seed_of, is_averaged):
    """Return a training of so many steps that averages those gradients for which *is_averaged* holds."""

    def work(rank):
        def average(model):
            step = next(steps)
            for name, parameter in model.named_parameters():
                average = parameter.grad.clone()
                dist.all_reduce(average, op=dist.ReduceOp.AVG)
                if is_averaged(rank, step, name):
                    parameter.grad.copy_(average)

        torch.manual_seed(seed_of(rank))
        model, steps = _model(), itertools.count()
        torch.manual_seed(rank)
        train(model, [torch.rand(4, 4) + rank for _ in range(STEPS)], average)

    return work


def _checked(work, ranks: int = RANKS) -> tuple[ReplicaCheck, float]:
    record = ParameterRecord()
    outcome = in_group(work, ranks, parameters=record)
    return check_replicas(record), outcome.seconds


@settings(max_examples=8)
@given(rank=st.integers(0, RANKS - 1), step=st.integers(0, STEPS - 1), name=st.sampled_from(NAMES))
def test_the_rank_the_step_and_the_parameter_are_named_whose_gradient_was_not_averaged(rank, step, name):
    work = _train_by_hand(lambda rank: 0, lambda *here: here != (rank, step, name))

    (violation,) = _checked(work)[0].violations

    others = ", ".join(str(own) for own in range(RANKS) if own != rank)
    assert f"replicas part in step {step + 1} (clusters.py:" in violation
    assert f"in {name}; of {name} ranks {others} and rank {rank} hold different values" in violation
    assert "not all of it was averaged" in violation


def test_replicas_that_stay_alike_pass_in_the_time_that_the_run_takes_anyway():
    work = _train_by_hand(lambda rank: 0, lambda *here: True)

    check, seconds = _checked(work)

    assert check.holds
    assert check.compared == (f"Sequential on ranks 0, 1, 2, {STEPS} steps",)
    assert seconds == in_group(work, RANKS).seconds


def test_models_that_began_differently_are_found_by_the_first_step():
    check, _ = _checked(_train_by_hand(lambda rank: rank, lambda *here: True))

    assert "began with different parameters (0.weight, 0.bias, 2.weight and 1 more)" in check.violations[0]


def parameters_of_an_optimizer_alone(rank: int, drifts: bool) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.2 if drifts and rank == 1 else 0.1)
    weight.sum().backward()
    optimizer.step()


def optimizers_that_differ(rank: int, drifts: bool) -> None:
    train(DistributedDataParallel(_model()), [torch.ones(4, 4)], lr=0.1 * (1 + rank * drifts))


def hybrid_shards(rank: int, drifts: bool) -> None:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False)), mesh=mesh)
    train(model, [torch.ones(4, 4)], lr=0.2 if drifts and rank == 3 else 0.1)


def hybrid_shards_of_fsdp1(rank: int, drifts: bool, original: bool) -> None:
    torch.manual_seed(0)
    model = FullyShardedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False)),
        device_mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        use_orig_params=original,
        device_id=CPU,
    )
    train(model, [torch.ones(4, 4)], lr=0.2 if drifts and rank == 3 else 0.1)


def states_of_optimizers(rank: int, drifts: bool) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = train(model, [torch.ones(1, 2)] * 2, lr=0.0, momentum=0.9)
    if drifts and rank == 1:
        optimizer.state[model.module.bias]["momentum_buffer"] *= 2


APART = "rank 1 and rank 3 hold different values"
NODES = "Sequential on ranks 0, 2, 1 steps", "Sequential on ranks 1, 3, 1 steps"


@pytest.mark.parametrize("drifts", [False, True])
@pytest.mark.parametrize(
    ("work", "ranks", "compared", "said"),
    [
        (parameters_of_an_optimizer_alone, 2, ("SGD on ranks 0, 1, 1 steps",), "hold different values"),
        (
            optimizers_that_differ, 2, ("Sequential on ranks 0, 1, 1 steps",),
            "gradients of 0.weight are the same: it was changed otherwise, or the optimizers differ",
        ),
        (hybrid_shards, 4, NODES, APART),
        (partial(hybrid_shards_of_fsdp1, original=False), 4, NODES, APART),
        (partial(hybrid_shards_of_fsdp1, original=True), 4, NODES, APART),
        (
            states_of_optimizers, 2, ("Linear on ranks 0, 1, 2 steps",),
            "of momentum_buffer of bias rank 0 and rank 1 hold different values",
        ),
    ],
)  # fmt: skip
def test_what_ranks_begin_alike_is_compared_and_noticed_where_it_parts(work, ranks, compared, said, drifts):
    check, _ = _checked(lambda rank: work(rank, drifts), ranks)

    assert check.compared == compared
    assert [said in text for text in check.violations] == [True] * drifts


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
    def work(rank):
        model = DistributedDataParallel(_Counting(), forward_sync_buffers=broadcasts)
        for step in range(2):
            torch.manual_seed(rank)
            batch = torch.rand(4, 4)
            batch[0] = step + rank * drifts
            model(batch).sum().backward()

    check, _ = _checked(work, 2)

    said = "in buffer mean; of buffer mean rank 0 and rank 1 hold different values"
    assert [said in text for text in check.violations] == ([True] if drifts and not broadcasts else [])
    assert any("layers.1.running_mean" in text for text in check.not_compared)


@pytest.mark.parametrize("kind", [torch.amp.GradScaler, ShardedGradScaler])
def test_a_scaler_that_sees_the_gradients_of_one_shard_alone_parts_from_the_others(kind):
    def work(rank):
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

    check, _ = _checked(work, 2)

    apart = any("scale of the GradScaler" in text for text in check.violations)
    assert apart is (kind is torch.amp.GradScaler)


def shards_of_shards(rank: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=mesh["shard"])
    model(torch.ones(4, 4))


def shards_of_fsdp1_whose_gradients_are_alike(rank: int, original: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 5, bias=False)
    model = FullyShardedDataParallel(layer, use_orig_params=original, device_id=CPU)
    train(model, [torch.ones(1, 4)] * 2, call=lambda batch: model(batch).sum())


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize(
    ("work", "ranks", "said"),
    [
        (shards_of_shards, 4, "Sequential on ranks 0, 1, 2, 3: shards"),
        (partial(shards_of_fsdp1_whose_gradients_are_alike, original=False), 3,
         "Linear on ranks 0, 1, 2: FSDP1 shards"),
        (partial(shards_of_fsdp1_whose_gradients_are_alike, original=True), 3,
         "Linear on ranks 0, 1, 2: FSDP1 shards"),
    ],
)  # fmt: skip
def test_shards_are_nobodys_replicas(work, ranks, said):
    check, _ = _checked(work, ranks)

    assert check.holds
    assert check.text == f"Not compared: {said}, of which no two ranks hold the same"


def test_without_values_nothing_can_be_compared():
    with pytest.raises(NotSupportedError, match="run with data"):
        on_gpus(lambda rank: None, 2, fake=True, parameters=ParameterRecord())
