"""Boundaries in Python: what the host takes for modules, functions of autograd, DTensors and collectives."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.utils.checkpoint import checkpoint

import testbed
from collectives.virtual.streams.gpu import BETWEEN
from collectives.virtual.streams.score import HostWork
from tests.collectives.virtual.issued import BYTES_ALONE, issued_by, on_own_gpus

BOUNDARY, ENQUEUE = 1_000, 1_000_000
GPU = replace(BYTES_ALONE, host_overhead_ps=1, host_boundary_ps=BOUNDARY, host_enqueue_ps=ENQUEUE)


def crossed(prepare: Callable[[], Callable[[], Any]], ranks: int = 1, **options) -> tuple[int, int]:
    """Return boundaries and collectives in a call of what *prepare* returns."""

    def work() -> int:
        dist.init_process_group("nccl")
        issued = issued_by(prepare())
        return sum(item.duration_ps for item in issued if isinstance(item, HostWork) and item.name == BETWEEN)

    (between_ps,) = set(on_own_gpus(work, GPU, ranks, **options).results)
    return between_ps % ENQUEUE // BOUNDARY, between_ps // ENQUEUE


def vector(**options) -> torch.Tensor:
    return torch.ones(4, device="cuda", requires_grad=True, **options)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


class Squaring(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Squared.apply(x)


@pytest.mark.parametrize("fake", [True, False])
@given(modules=st.integers(0, 3), functions=st.integers(0, 3), hooks=st.integers(0, 2))
def test_each_module_each_hook_of_it_and_both_ways_of_a_function_are_one(fake, modules, functions, hooks):
    def prepare():
        own, x = [nn.ReLU() for _ in range(modules)], vector()
        for module in own:
            for _ in range(hooks):
                module.register_forward_hook(lambda *_: None)

        def call():
            out = x
            for function in (*own, *[Squared.apply] * functions):
                out = function(out)
            out.sum().backward()

        return call

    assert crossed(prepare, fake=fake) == (modules * (1 + hooks) + 2 * functions, 0)


def recomputed() -> Callable[[], Any]:
    module, x = Squaring(), vector()
    return lambda: checkpoint(module, x, use_reentrant=False).sum().backward()


def eager() -> Callable[[], Any]:
    module, x = nn.Sequential(Squaring(), nn.ReLU()), vector()
    return lambda: module(x).sum().backward()


def compiled() -> Callable[[], Any]:
    module, x = nn.Sequential(Squaring(), nn.ReLU()), vector()
    return lambda: torch.compile(lambda x: module(x))(x).sum().backward()


def fused() -> Callable[[], Any]:
    module, x = testbed.fused("kernel")(nn.Sequential(Squaring(), nn.ReLU()).forward), vector()
    return lambda: module(x).sum().backward()


def operations_on_dtensors() -> Callable[[], Any]:
    mesh = init_device_mesh("cuda", (2,))
    x = DTensor.from_local(torch.ones(4, device="cuda"), mesh, run_check=False)
    x + x
    return lambda: (x + x) * x


def collectives() -> Callable[[], Any]:
    x = torch.ones(4, device="cuda")
    return lambda: (dist.all_reduce(x), dist.all_reduce(x, async_op=True).wait())


def message() -> Callable[[], Any]:
    x = torch.ones(4, device="cuda")
    return lambda: dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (recomputed, (2 + 2 + 1, 0)),  # its module and its function once more
        (eager, (5, 0)),
        (compiled, (0, 0)),
        (fused, (0, 0)),
        (operations_on_dtensors, (2, 0)),
        (collectives, (0, 2)),
        (message, (0, 1)),  # at each end
    ],
)
def test_boundaries_and_enqueues_are_those_that_a_hand_counts(prepare, expected):
    assert crossed(prepare, ranks=2) == expected
