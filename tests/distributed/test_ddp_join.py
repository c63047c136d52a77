"""Ranks may run out of inputs: what the others still do is averaged as with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import ddp
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed


class WithBuffer(nn.Module):
    """Integer weights, a buffer that each forward pass changes, and a layer that may be unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.sometimes = nn.Linear(2, 2, bias=False)
        self.register_buffer("count", torch.zeros(1))
        for layer in (self.first, self.second, self.sometimes):
            nn.init.ones_(layer.weight)

    def forward(self, x: torch.Tensor, whole: bool) -> torch.Tensor:
        self.count += x.sum()
        hidden = self.second(self.first(x))
        return self.sometimes(hidden) if whole else hidden


def train(which: str, rank: int, world_size: int, options: dict[str, Any], join: dict[str, Any]) -> list[Any]:
    make = nn.parallel.DistributedDataParallel if which == "torch" else ddp.DistributedDataParallel
    own = options if which == "ours" else {k: v for k, v in options.items() if k not in ("algorithm", "hook")}
    own = {k: v for k, v in own.items() if k != "hook"}
    model: Any = make(WithBuffer(), bucket_cap_mb=1e-5, **own)
    if options.get("hook"):
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    find = options.get("find_unused_parameters", False)
    seen: list[Any] = []
    with model.join(**join):
        for step in range(2 + rank):
            model.zero_grad()
            if step == 1:
                with model.no_sync():
                    model(torch.ones(1, 2), not find).sum().backward()
            x = torch.full((1, 2), float(world_size * 6 * (rank + 1)))
            model(x, step % 2 == 0 or not find).sum().backward()
            seen += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return seen + [tensor.clone() for tensor in model.state_dict().values()]


def compare(
    rank: int, world_size: int, options: dict[str, Any], join: dict[str, Any]
) -> list[tuple[Any, Any]]:
    theirs = train("torch", rank, world_size, options, join)
    ours = train("ours", rank, world_size, options, join)
    assert len(ours) == len(theirs)
    return [(a, b) for a, b in zip(ours, theirs, strict=True) if not same(a, b)]


def same(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Torch gives zeros where no active rank used a parameter that one has used which has joined."""
    if ours is None or theirs is None:
        return ours is None and (theirs is None or not theirs.any())
    return torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("options", "join"),
    [
        ({}, {}),
        ({}, {"divide_by_initial_world_size": False}),
        ({"find_unused_parameters": True}, {}),
        ({"hook": True}, {}),
        ({"algorithm": "ring", "gradient_as_bucket_view": True}, {}),
    ],
    ids=str,
)
def test_uneven_inputs_are_averaged_as_with_torch(
    pool: WorkerPool, options: dict[str, Any], join: dict[str, Any]
) -> None:
    assert pool.run(compare, 3, options, join) == [[], [], []]


def end_early(rank: int, world_size: int) -> str:
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1))

    def train_until_somebody_ends() -> None:
        with model.join(throw_on_early_termination=True):
            for _ in range(1 + rank):
                model(torch.ones(1, 1)).sum().backward()

    with pytest.raises(RuntimeError) as caught:
        train_until_somebody_ends()
    return str(caught.value)


def test_all_ranks_raise_when_one_has_no_more_inputs_if_asked_to(pool: WorkerPool) -> None:
    joined, active = pool.run(end_early, 2)

    assert "Rank 0 exhausted all inputs" in joined
    assert "Detected at least one rank that exhausted inputs" in active


def train_after_join(rank: int, world_size: int) -> float:
    model: Any = ddp.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(1 + rank):
            model(torch.ones(1, 1)).sum().backward()
    model.zero_grad()
    model(torch.full((1, 1), float(rank))).sum().backward()
    return float(model.module.weight.grad.item())


def test_after_the_context_all_ranks_count_again(pool: WorkerPool) -> None:
    assert pool.run(train_after_join, 2) == [0.5, 0.5]
