"""Torch's `DistributedDataParallel` is the oracle of ours, on the same data on the same ranks.

With two ranks a sum has one order, so gradients must agree bit for bit, whatever the numbers.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddp
from sim.trace import Span, Trace
from tests.distributed.pool import WorkerPool
from tests.distributed.scenario import Scenario, Scenarios, line, number

pytestmark = pytest.mark.distributed
cases = Scenarios()


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


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


def batches(rank: int, count: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        yield torch.randn(3, 2, 5, 5, generator=generator)


@cases.add(
    {},
    {"bucket_cap_mb": 0.0005},
    {"gradient_as_bucket_view": True},
    {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0005},
    {"forward_sync_buffers": False},
    {"broadcast_buffers": False},
    {"init_sync": False},
    {"strategy": "after_backward"},
    {"algorithm": "ring"},
    {"bucket_cap_mb": 0.0005, "algorithm": "tree"},
)
def two_ranks_train(make: Any, rank: int) -> list[torch.Tensor]:
    """Return all gradients of all steps, then parameters and buffers."""
    module = Mixed(seed=rank if make.keywords.get("init_sync", True) else 0)
    module.norm.running_mean.fill_(rank)
    model = make(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    seen = []
    for step, images in enumerate(batches(rank, 4)):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(images).square().mean().backward()
        seen += gradients(model)
        optimizer.step()
    return seen + [tensor.clone() for tensor in model.state_dict().values()]


@cases.add({}, {"gradient_as_bucket_view": True})
def no_sync_accumulates_locally_and_the_sum_is_reduced(make: Any, rank: int) -> list[torch.Tensor]:
    model = make(Mixed(seed=rank))
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


@cases.add(oracle=False, expected=[0.5, 5.5])
def each_of_two_forward_passes_is_reduced_by_its_own_backward(make: Any, rank: int) -> list[float]:
    model = make(line())
    first, second = model(number(rank)), model(number(10 * rank))
    first.backward()
    after_first = model.module.weight.grad.item()
    second.backward()
    return [after_first, model.module.weight.grad.item()]


@cases.add(expected=[True, True, 0.5])
def a_backward_pass_that_reaches_no_parameter_reduces_nothing(make: Any, rank: int) -> list[Any]:
    critic = make(line())
    weight = critic.module.weight
    image = number(rank).requires_grad_()
    (slope,) = torch.autograd.grad(critic(image), image)
    critic.requires_grad_(False)
    critic(image).backward()
    critic.requires_grad_(True)
    critic(image).backward()
    return [torch.equal(slope, weight), torch.equal(image.grad, 2 * weight), weight.grad.item()]


class ComplexScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.z = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, factor: complex) -> torch.Tensor:
        return (self.z * factor).real.sum()


@cases.add(expected=1 - 1j)
def complex_gradients_are_averaged(make: Any, rank: int) -> complex:
    model = make(ComplexScale())
    model(2.0 * rank + 1j).backward()
    return complex(model.module.z.grad.item())


@cases.add(world_size=3, expected=(None, [1.0, 1.5], [1.0, 1.5]))
@cases.add({"algorithm": "ring"}, world_size=3, expected=(None, [1.0, 1.5], [1.0, 1.5]))
def a_group_of_some_ranks_trains_from_its_first_rank_on(make: Any, rank: int) -> list[float] | None:
    group = dist.new_group([1, 2])
    if rank == 0:
        return None
    module: Any = line()
    nn.init.constant_(module.weight, rank)
    model = make(module, process_group=group)
    model(number(rank)).backward()
    return [module.weight.item(), module.weight.grad.item()]


@cases.add(world_size=3)
def wrapping_gives_every_rank_the_values_of_rank_zero_but_for_those_ignored(
    make: Any, rank: int
) -> list[Any]:
    module: Any = Mixed(seed=rank)
    module.norm.running_mean.fill_(rank)
    ddp.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        module, ["frozen", "norm.running_var"]
    )
    nn.init.constant_(module.frozen, rank)
    module.norm.running_var.fill_(rank)
    model = make(module)
    model.eval()(torch.ones(1, 2, 5, 5))
    state = model.state_dict()
    assert torch.equal(state["module.norm.running_var"], torch.full((4,), float(rank)))
    assert torch.equal(state["module.frozen"], torch.full((3,), float(rank)))
    return [(name, value.clone()) for name, value in state.items()]


@cases.add(expected=[0, 0.5])
def a_module_can_be_wrapped_again(make: Any, rank: int) -> list[float]:
    module: Any = line()
    old = make(module)
    old(number(1)).sum().backward()
    del old
    num_hooks = len(module.weight._post_accumulate_grad_hooks or ())
    new = make(module)
    new.zero_grad()
    new(number(rank)).sum().backward()
    return [num_hooks, module.weight.grad.item()]


@cases.add({}, expected=(4, 4), oracle=False)
@cases.add({"gradient_as_bucket_view": True}, expected=(2, 2))
def gradients_are_views_of_the_two_buckets_only_where_asked_for(make: Any, rank: int) -> int:
    model = make(nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)), bucket_cap_mb=0.0003)
    for _ in range(2):
        model(torch.ones(1, 9)).sum().backward()
    return len({parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()})


@cases.add(oracle=False, expected=[True, True, False])
def a_wrapped_module_can_be_copied_saved_restored_and_evaluated(make: Any, rank: int) -> list[bool]:
    model = make(Mixed(seed=rank))
    images = torch.ones(2, 2, 5, 5)
    model(images).sum().backward()
    average = copy.deepcopy(model.module)
    average(images).sum().backward()
    restored = make(Mixed(seed=7))
    restored.load_state_dict(model.state_dict())
    model.eval()
    with torch.no_grad():
        return [
            torch.equal(model(images), restored.eval()(images)),
            not any(parameter._post_accumulate_grad_hooks for parameter in average.parameters()),
            model.training,
        ]


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclasses.dataclass
class Record:
    one: Any
    two: Any


class Named(dict[str, Any]):
    pass


class Listed(list[Any]):
    pass


WRAP = {
    "tuple": lambda one, two: (one, two),
    "nested": lambda one, two: {"outer": [(one,), {"inner": (3, two)}]},
    "named tuple": Pair,
    "dataclass": Record,
    "dataclass within a dict": lambda one, two: {"record": Record(one, [two])},
    "class of dictionaries": lambda one, two: (one, Named(two=two)),
    "class of lists": lambda one, two: (one, Listed([two])),
}


class Two(nn.Module):
    """Two layers, of which a backward pass may use one."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one = nn.Linear(2, 2, bias=False)
        self.two = nn.Linear(2, 2, bias=False)
        self.wrap = wrap
        self.latest: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.latest = [self.one(x), self.two(x)]
        return self.wrap(*self.latest)


KINDS = [{"kind": kind} for kind in WRAP]


@cases.add({}, {"find_unused_parameters": True}, given=KINDS)
def outputs_in_containers_are_found(make: Any, rank: int, kind: str) -> list[Any]:
    model = make(Two(WRAP[kind]))
    seen = []
    for _ in range(3):
        output = model(torch.full((1, 2), rank + 1.0))
        assert type(output) is type(model.module.wrap(0, 0))
        (model.module.latest[0] * 2 + model.module.latest[1]).sum().backward()
        seen += gradients(model)
    return seen


@cases.add({"find_unused_parameters": True}, given=KINDS, oracle=False, expected=[1.5, 1.5])
def a_backward_pass_through_any_of_the_tensors_is_reduced(make: Any, rank: int, kind: str) -> list[float]:
    """Reduce in the backward pass of each output; what the other one used is unused."""
    model = make(Two(WRAP[kind]))
    found = []
    for layer in (model.module.one, model.module.two):
        model.zero_grad()
        model(torch.full((1, 2), rank + 1.0))
        model.module.latest[model.module.two is layer].sum().backward()
        found.append(layer.weight.grad[0, 0].item())
    return found


@pytest.mark.filterwarnings("ignore")
@cases.test
def test_our_ddp_does_as_torchs(pool: WorkerPool, scenario: Scenario, place: str) -> None:
    scenario.check(pool, place)


def refer(rank: int, world_size: int, rendezvous: str) -> list[list[float]]:
    from torch.distributed import rpc

    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{rendezvous}", _transports=["uv"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
    seen = []
    try:
        for make in (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel):
            for unused in (False, True):
                model: Any = make(
                    Two(lambda one, two: rpc.RRef({"one": one, "two": [two]})), find_unused_parameters=unused
                )
                output = model(torch.full((1, 2), rank + 1.0))
                values = output.local_value()
                (values["one"] + values["two"][0]).sum().backward()
                seen.append([parameter.grad[0, 0].item() for parameter in model.parameters()])
        mixed = ddp.DistributedDataParallel(
            Two(lambda one, two: (one, rpc.RRef(two))), find_unused_parameters=True
        )
        mixed(torch.full((1, 2), rank + 1.0))[1].local_value().sum().backward()
        seen.append([mixed.module.two.weight.grad[0, 0].item()])
    finally:
        rpc.shutdown()
    return seen


def test_tensors_behind_remote_references_are_found_as_with_torch(pool: WorkerPool, tmp_path: Path) -> None:
    for seen in pool.run(refer, 2, str(tmp_path / "rendezvous")):
        assert seen == [[1.5, 1.5]] * 4 + [[1.5]]


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
