"""Ours against torch's `DistributedDataParallel`, the oracle, on the same data in the same processes.

With two ranks a sum has one order, so gradients must agree bit for bit, whatever the numbers.  With
more, data and parameters are small integers, whose sums are exact in any order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddp
from sim.trace import Span, Trace
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed

Options = dict[str, Any]


class Mixed(nn.Module):
    """Shared, frozen, scalar and half-size parameters, buffers, channels-last weights, two dtypes."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Linear(4, 16)
        self.second = nn.Linear(16, 16)
        self.shared = nn.Linear(16, 16)
        self.shared.weight = self.second.weight
        self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.conv(images)).mean(dim=(2, 3))
        hidden = torch.relu(self.first(hidden))
        hidden = self.shared(torch.relu(self.second(hidden)))
        return hidden * self.scale.to(hidden.dtype) + self.frozen.sum()


def integer_net(seed: int = 0) -> nn.Module:
    """A net of small integers stored as floats: every sum in it is exact."""
    torch.manual_seed(seed)
    net = nn.Sequential(*(nn.Linear(6, 6) for _ in range(5)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    return net


def wrap(which: str, module: nn.Module, options: Options) -> nn.Module:
    if which == "torch":
        return nn.parallel.DistributedDataParallel(module, **options)
    return ddp.DistributedDataParallel(module, **options)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def batches(rank: int, count: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield torch.randn(3, 2, 5, 5, generator=generator)


def train_mixed(which: str, rank: int, options: Options, num_steps: int = 4) -> list[torch.Tensor]:
    """Return all gradients of all steps, then parameters and buffers."""
    module = Mixed(seed=rank if options.get("init_sync", True) else 0)
    module.norm.running_mean.fill_(rank)
    model = wrap(which, module, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = []
    for step, images in enumerate(batches(rank, num_steps)):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(images).square().mean().backward()
        seen += gradients(model)
        optimizer.step()
    return seen + [tensor.clone() for tensor in model.state_dict().values()]


def differing(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> list[int]:
    assert len(ours) == len(theirs)
    pairs = enumerate(zip(ours, theirs, strict=True))
    return [index for index, (a, b) in pairs if not (torch.equal(a, b) and a.stride() == b.stride())]


def compare_mixed(rank: int, world_size: int, options: Options, own: Options) -> list[int]:
    theirs = train_mixed("torch", rank, options)
    return differing(train_mixed("ours", rank, {**options, **own}), theirs)


@pytest.mark.parametrize(
    ("options", "own"),
    [
        ({}, {}),
        ({"bucket_cap_mb": 0.0005}, {}),
        ({"gradient_as_bucket_view": True}, {}),
        ({"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0005}, {}),
        ({"forward_sync_buffers": False}, {}),
        ({"broadcast_buffers": False}, {}),
        ({"init_sync": False}, {}),
        ({}, {"strategy": "after_backward"}),
        ({}, {"algorithm": "ring"}),
        ({"bucket_cap_mb": 0.0005}, {"algorithm": "tree"}),
    ],
    ids=str,
)
def test_two_ranks_train_bit_for_bit_as_with_torch(pool: WorkerPool, options: Options, own: Options) -> None:
    assert pool.run(compare_mixed, 2, options, own) == [[], []]


def compare_integers(rank: int, world_size: int, options: Options, own: Options) -> list[int]:
    seen: dict[str, list[torch.Tensor]] = {}
    for which, extra in (("torch", {}), ("ours", own)):
        model = wrap(which, integer_net(), {**options, **extra})
        generator = torch.Generator().manual_seed(rank)
        seen[which] = []
        for _ in range(3):
            model.zero_grad()
            model(torch.randint(-2, 3, (2, 6), generator=generator).float()).sum().mul(world_size).backward()
            seen[which] += gradients(model)
    return differing(seen["ours"], seen["torch"])


@pytest.mark.costly
@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize("algorithm", ["native", "ring", "naive"])
def test_ranks_average_exactly_as_with_torch(pool: WorkerPool, world_size: int, algorithm: str) -> None:
    results = pool.run(compare_integers, world_size, {"bucket_cap_mb": 0.0002}, {"algorithm": algorithm})

    assert results == [[]] * world_size


def accumulate(which: str, rank: int, options: Options) -> list[torch.Tensor]:
    model = wrap(which, Mixed(seed=rank), options)
    seen = []
    data = batches(rank, 7)
    model(next(data)).mean().backward()
    for _ in range(2):
        model.zero_grad()
        with model.no_sync():
            for _ in range(2):
                model(next(data)).mean().backward()
        seen += gradients(model)
        model(next(data)).mean().backward()
        seen += gradients(model)
    return seen


def compare_accumulation(rank: int, world_size: int, options: Options) -> list[int]:
    return differing(accumulate("ours", rank, options), accumulate("torch", rank, options))


@pytest.mark.parametrize("as_view", [False, True])
def test_no_sync_accumulates_locally_and_reduces_the_sum_as_with_torch(
    pool: WorkerPool, as_view: bool
) -> None:
    assert pool.run(compare_accumulation, 2, {"gradient_as_bucket_view": as_view}) == [[], []]


def compare_buckets(rank: int, world_size: int, cap: float | None) -> tuple[list[int], list[int], Any, Any]:
    sizes = []
    for which in ("torch", "ours"):
        model = wrap(which, nn.Sequential(*(nn.Linear(700, 700) for _ in range(5))), {"bucket_cap_mb": cap})
        before = model.bucket_nbytes if which == "ours" else None
        for _ in range(4):
            model(torch.ones(1, 700)).sum().backward()
        if which == "ours":
            sizes += [before, model.bucket_nbytes]
        else:
            data = model._get_ddp_logging_data()
            sizes += [
                [int(size) for size in data[key].split(",")]
                for key in ("bucket_sizes", "rebuilt_bucket_sizes")
            ]
    return tuple(sizes)


@pytest.mark.parametrize("cap", [None, 4, 0.5])
def test_the_first_pass_has_one_bucket_and_later_ones_the_buckets_of_torch(
    pool: WorkerPool, cap: float | None
) -> None:
    for first, rebuilt, our_first, our_rebuilt in pool.run(compare_buckets, 2, cap):
        assert (our_first, our_rebuilt) == (first, rebuilt)


def reduce_two_forwards(rank: int, world_size: int) -> list[float]:
    model = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    first, second = model(torch.tensor([[float(rank)]])), model(torch.tensor([[10.0 * rank]]))
    first.backward()
    after_first = model.module.weight.grad.item()
    second.backward()
    return [after_first, model.module.weight.grad.item()]


def test_each_of_two_forward_passes_is_reduced_by_its_own_backward(pool: WorkerPool) -> None:
    assert pool.run(reduce_two_forwards, 2) == [[0.5, 5.5]] * 2


def pass_through_a_frozen_module(rank: int, world_size: int) -> list[float]:
    critic = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    weight = critic.module.weight
    image = torch.tensor([[float(rank)]], requires_grad=True)
    (slope,) = torch.autograd.grad(critic(image), image)
    critic.requires_grad_(False)
    critic(image).backward()
    critic.requires_grad_(True)
    critic(image).backward()
    return [torch.equal(slope, weight), torch.equal(image.grad, 2 * weight), weight.grad.item()]


def test_a_backward_pass_that_reaches_no_parameter_reduces_nothing(pool: WorkerPool) -> None:
    assert pool.run(pass_through_a_frozen_module, 2) == [[True, True, 0.5]] * 2


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=True)
        return {"out": torch.utils.checkpoint.checkpoint(self.second, hidden, use_reentrant=True)}


def train_checkpointed(rank: int, world_size: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = ddp.DistributedDataParallel(Checkpointed(), bucket_cap_mb=1e-5)
    for _ in range(3):
        model.zero_grad()
        model(torch.full((1, 2), rank + 1.0, requires_grad=True))["out"].sum().backward()
    return gradients(model)


def test_reentrant_checkpoints_do_not_end_the_pass_early(pool: WorkerPool) -> None:
    first, second = pool.run(train_checkpointed, 2)

    assert len(first) == 4
    assert differing(first, second) == []


class KeepsItsLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> None:
        self.loss = self.layer(x).sum()


def reduce_a_loss_that_is_not_returned(rank: int, world_size: int) -> float:
    model = ddp.DistributedDataParallel(KeepsItsLoss())
    model(torch.tensor([[float(rank)]]))
    model.module.loss.backward()
    return model.module.layer.weight.grad.item()


def test_a_loss_that_forward_does_not_return_is_reduced_too(pool: WorkerPool) -> None:
    assert pool.run(reduce_a_loss_that_is_not_returned, 2) == [0.5, 0.5]


def wrap_with_other_values(rank: int, world_size: int) -> dict[str, torch.Tensor]:
    module = Mixed(seed=rank)
    module.norm.running_mean.fill_(rank)
    ddp.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["frozen"])
    with torch.no_grad():
        module.frozen.fill_(rank)
    return {name: value.clone() for name, value in ddp.DistributedDataParallel(module).state_dict().items()}


def test_wrapping_gives_every_rank_the_values_of_rank_zero_but_for_those_ignored(pool: WorkerPool) -> None:
    zero, *others = pool.run(wrap_with_other_values, 3)

    assert all(name.startswith("module.") for name in zero)
    for rank, state in enumerate(others, start=1):
        assert torch.equal(state.pop("module.frozen"), torch.full((3,), float(rank)))
        assert all(torch.equal(state[name], zero[name]) for name in state)


def wrap_twice(rank: int, world_size: int) -> list[float]:
    module = nn.Linear(1, 1, bias=False)
    old = ddp.DistributedDataParallel(module)
    old(torch.ones(1, 1)).sum().backward()
    del old
    num_hooks = [len(module.weight._post_accumulate_grad_hooks)]
    new = ddp.DistributedDataParallel(module)
    new.zero_grad()
    new(torch.full((1, 1), float(rank))).sum().backward()
    return [*num_hooks, module.weight.grad.item()]


def test_a_module_can_be_wrapped_again(pool: WorkerPool) -> None:
    assert pool.run(wrap_twice, 2) == [[0, 0.5]] * 2


class ComplexScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.z = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, factor: complex) -> torch.Tensor:
        return (self.z * factor).real.sum()


def complex_gradient(rank: int, world_size: int) -> complex:
    model = ddp.DistributedDataParallel(ComplexScale())
    model(2.0 * rank + 1j).backward()
    return complex(model.module.z.grad.item())


def test_complex_gradients_are_averaged(pool: WorkerPool) -> None:
    assert pool.run(complex_gradient, 2) == [1 - 1j, 1 - 1j]


def count_storages(rank: int, world_size: int, as_view: bool) -> tuple[int, int]:
    model = ddp.DistributedDataParallel(
        nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)), bucket_cap_mb=0.0003, gradient_as_bucket_view=as_view
    )
    for _ in range(2):
        model(torch.ones(1, 9)).sum().backward()
    storages = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
    return len(storages), len(model.bucket_nbytes)


def test_gradients_are_views_of_the_buckets_only_where_asked_for(pool: WorkerPool) -> None:
    assert pool.run(count_storages, 2, False) == [(4, 2)] * 2
    assert pool.run(count_storages, 2, True) == [(2, 2)] * 2


def train_a_subgroup(rank: int, world_size: int, algorithm: str) -> tuple[float, float] | None:
    group = dist.new_group([1, 2])
    if rank not in (1, 2):
        return None
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(rank)
    model = ddp.DistributedDataParallel(module, process_group=group, algorithm=algorithm)
    model(torch.tensor([[float(rank)]])).backward()
    return module.weight.item(), module.weight.grad.item()


@pytest.mark.parametrize("algorithm", ["native", "ring"])
def test_a_group_of_some_ranks_trains_from_its_first_rank_on(pool: WorkerPool, algorithm: str) -> None:
    assert pool.run(train_a_subgroup, 3, algorithm) == [None, (1.0, 1.5), (1.0, 1.5)]


def copy_and_restore(rank: int, world_size: int) -> list[bool]:
    model = ddp.DistributedDataParallel(Mixed(seed=rank))
    images = torch.ones(2, 2, 5, 5)
    model(images).sum().backward()
    average = copy.deepcopy(model.module)
    average(images).sum().backward()
    restored = ddp.DistributedDataParallel(Mixed(seed=7))
    restored.load_state_dict(model.state_dict())
    model.eval()
    with torch.no_grad():
        return [
            torch.equal(model(images), restored.eval()(images)),
            not any(parameter._post_accumulate_grad_hooks for parameter in average.parameters()),
            model.training,
        ]


def test_a_wrapped_module_can_be_copied_saved_restored_and_evaluated(pool: WorkerPool) -> None:
    assert pool.run(copy_and_restore, 2) == [[True, True, False]] * 2


def record_spans(rank: int, world_size: int, strategy: str) -> tuple[list[Span], list[int]]:
    trace = Trace()
    model = ddp.DistributedDataParallel(
        nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)),
        bucket_cap_mb=1e-6,
        algorithm="ring",
        strategy=strategy,
        recorder=trace,
    )
    for _ in range(2):
        trace.spans.clear()
        model(torch.ones(1, 9)).sum().backward()
    return trace.spans, model.bucket_nbytes


@pytest.mark.parametrize("strategy", ["after_backward", "per_parameter", "wait_free"])
def test_a_recorder_is_told_compute_and_every_bucket_of_a_step(pool: WorkerPool, strategy: str) -> None:
    for rank, (spans, bucket_nbytes) in enumerate(pool.run(record_spans, 2, strategy)):
        computed = [span for span in spans if span.track == "compute"]
        reduced = [span for span in spans if span.track == "communication"]
        assert {span.rank for span in spans} == {rank}
        assert [span.name for span in computed[:2]] == ["forward", "gradient:1.bias"]
        assert [span.args["nbytes"] for span in reduced] == bucket_nbytes == [36, 324, 36, 324]
        for track in (computed, reduced):
            assert all(a.end_ps <= b.start_ps for a, b in pairwise(track))
        if strategy == "after_backward":
            assert computed[-1].end_ps <= reduced[0].start_ps
