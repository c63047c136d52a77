"""Gradients are averaged whatever the forward pass returns its tensors in, as with torch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import ddp
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed


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


def train(rank: int, world_size: int, kind: str, options: dict[str, Any]) -> bool:
    same = True
    models: list[Any] = [
        make(Two(WRAP[kind]), **options)
        for make in (nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel)
    ]
    for _ in range(3):
        for model in models:
            output = model(torch.full((1, 2), rank + 1.0))
            assert type(output) is type(model.module.wrap(0, 0))
            (model.module.latest[0] * 2 + model.module.latest[1]).sum().backward()
        theirs, ours = ([parameter.grad for parameter in model.parameters()] for model in models)
        same &= all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    return same


@pytest.mark.parametrize("kind", WRAP)
def test_outputs_in_containers_are_found_as_with_torch(pool: WorkerPool, kind: str) -> None:
    for options in ({}, {"find_unused_parameters": True}):
        assert pool.run(train, 2, kind, options) == [True, True]


def one_by_one(rank: int, world_size: int, kind: str) -> list[float]:
    """Reduce in the backward pass of each output; what the other one used is unused."""
    model = ddp.DistributedDataParallel(Two(WRAP[kind]), find_unused_parameters=True)
    found = []
    for layer in (model.module.one, model.module.two):
        model.zero_grad()
        model(torch.full((1, 2), rank + 1.0))
        model.module.latest[model.module.two is layer].sum().backward()
        found.append(layer.weight.grad[0, 0].item())
    return found


@pytest.mark.parametrize("kind", WRAP)
def test_a_backward_pass_through_any_of_the_tensors_is_reduced(pool: WorkerPool, kind: str) -> None:
    assert pool.run(one_by_one, 2, kind) == [[1.5, 1.5]] * 2


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
