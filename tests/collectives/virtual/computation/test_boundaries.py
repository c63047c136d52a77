"""Boundaries in Python: what the host takes for modules, functions of autograd, DTensors and collectives."""

from collections.abc import Callable
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
from collectives.virtual import Roofline, run
from collectives.virtual.streams.gpu import BETWEEN, current_gpu
from collectives.virtual.streams.score import HostWork
from sim import Device, Topology
from sim.units import SECOND

BOUNDARY, ENQUEUE = 1_000, 1_000_000
GPU = Device(
    "gpu",
    {"float32": 2**62},
    memory_bandwidth=SECOND,
    kind="gpu",
    host_overhead_ps=1,
    host_boundary_ps=BOUNDARY,
    host_enqueue_ps=ENQUEUE,
    peaks={"float32": 2**62},
    copy_bandwidth=SECOND,
)


def crossed(work: Callable[[Callable[[], None]], Any], ranks: int = 1, **options) -> tuple[int, int]:
    """Return boundaries and collectives in *work*, from where it calls its argument."""
    found = []

    def rank(_):
        gpu = current_gpu()
        begin = 0

        def here():
            nonlocal begin
            gpu.issue_deferred()
            begin = len(gpu.score)

        dist.init_process_group("nccl")
        gpu.score.kept_from = 0
        work(here)
        gpu.issue_deferred()
        items = gpu.score.items[begin - gpu.score.dropped :]
        found.append(
            sum(item.duration_ps for item in items if isinstance(item, HostWork) and item.name == BETWEEN)
        )

    network = Topology.switch(num_ranks=ranks, bandwidth="1GB/s", latency=0)
    run(rank, network=network, compute=Roofline(GPU), fold=False, **options)
    assert len(set(found)) == 1
    return found[0] % ENQUEUE // BOUNDARY, found[0] // ENQUEUE


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
    def work(here):
        own, x = [nn.ReLU() for _ in range(modules)], vector()
        for module in own:
            for _ in range(hooks):
                module.register_forward_hook(lambda *_: None)
        here()
        for module in own:
            x = module(x)
        for _ in range(functions):
            x = Squared.apply(x)
        x.sum().backward()

    assert crossed(work, fake=fake) == (modules * (1 + hooks) + 2 * functions, 0)


def test_a_recomputation_goes_through_its_modules_and_functions_once_more():
    def work(here):
        module, x = Squaring(), vector()
        here()
        checkpoint(module, x, use_reentrant=False).sum().backward()

    assert crossed(work) == (2 + 2 + 1, 0)


def test_inside_of_a_compiled_or_fused_region_there_are_none_either_way():
    def compiled(here):
        module, x = nn.Sequential(Squaring(), nn.ReLU()), vector()
        here()
        torch.compile(lambda x: module(x))(x).sum().backward()

    def fused(here):
        module, x = nn.Sequential(Squaring(), nn.ReLU()), vector()
        here()
        with testbed.fused("kernel"):
            x = module(x)
        x.sum().backward()

    def eager(here):
        module, x = nn.Sequential(Squaring(), nn.ReLU()), vector()
        here()
        module(x).sum().backward()

    assert crossed(compiled) == crossed(fused) == (0, 0)
    assert crossed(eager) == (5, 0)


def test_operations_on_dtensors_are_one_each():
    def work(here):
        mesh = init_device_mesh("cuda", (2,))
        x = DTensor.from_local(torch.ones(4, device="cuda"), mesh, run_check=False)
        x + x
        here()
        (x + x) * x

    assert crossed(work, ranks=2) == (2, 0)


def test_each_collective_and_each_end_of_a_message_is_one_enqueue():
    def called(here):
        x = torch.ones(4, device="cuda")
        here()
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()

    def message(here):
        x = torch.ones(4, device="cuda")
        here()
        dist.send(x, 1) if dist.get_rank() == 0 else dist.recv(x, 0)

    assert crossed(called, ranks=2) == (0, 2)
    assert crossed(message, ranks=2) == (0, 1)
