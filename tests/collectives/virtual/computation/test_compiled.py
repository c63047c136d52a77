"""Compiled regions: their element-wise operations are one kernel, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from collectives.virtual import Roofline, run
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.score import Launch
from sim import Device, Topology
from sim.units import SECOND
from tests.collectives.virtual.clusters import script

GPU = Device(
    "gpu",
    {"float32": 2**62},
    memory_bandwidth=SECOND,  # a byte: 1 ps
    launch_ps=1000,
    kind="gpu",
    peaks={"float32": 2**62},
    copy_bandwidth=SECOND,
)
ALONE = Topology.switch(num_ranks=1, bandwidth="1GB/s", latency=0)
SIZE = 1000
NBYTES = 4 * SIZE


def launched(work, **options):
    """Return names and times of what *work* launches, from where it calls its argument."""
    found = []

    def rank(_):
        gpu = current_gpu()
        begin = 0

        def here():
            nonlocal begin
            begin = len(gpu.score.items)

        work(here)
        gpu.issue_deferred()
        items = gpu.score.items[begin:]
        found.extend((item.name, item.duration_ps) for item in items if isinstance(item, Launch))

    run(rank, network=ALONE, compute=Roofline(GPU), **options)
    return found


def chain(x, y):
    return torch.relu(x * 2 + y).sigmoid()


def vector():
    return torch.empty(SIZE, device="cuda")


def test_element_wise_operations_of_a_compiled_function_are_one_pass():
    def eager(begin):
        x, y = vector(), vector()
        begin()
        chain(x, y)

    def compiled(begin):
        x, y = vector(), vector()
        begin()
        torch.compile(chain)(x, y)

    assert [time for _, time in launched(eager)] == [
        2 * NBYTES + 1000, 3 * NBYTES + 1000, 2 * NBYTES + 1000, 2 * NBYTES + 1000,
    ]  # fmt: skip
    assert launched(compiled) == [("fused mul add relu", 3 * NBYTES + 1000)]


def test_what_is_kept_of_a_fused_kernel_is_written():
    kept = []

    def keeping(x, y):
        kept.append(x * 2)
        return kept[-1] + y

    def compiled(begin):
        torch.compile(keeping)(vector(), vector())

    assert launched(compiled) == [("fused mul add", 4 * NBYTES + 1000)]


def test_another_kernel_ends_a_fused_one_and_is_launched_behind_it():
    kept = []

    def compiled(begin):
        a = torch.empty(10, 10, device="cuda")
        kept.append(torch.compile(lambda x: (x * 2 + 1) @ a * 3)(a))

    assert [name for name, _ in launched(compiled)] == ["fused mul add", "mm", "fused mul"]


def test_the_backward_pass_of_a_compiled_module_is_fused_too_and_what_surrounds_it_is_not():
    class Activated(nn.Module):
        def forward(self, x):
            return functional.gelu(functional.silu(x))

    def compiled(begin):
        module = torch.compile(Activated())
        x = vector().requires_grad_()
        (module(x) * 2).sum().backward()

    names = [name for name, _ in launched(compiled)]

    assert names[:3] == ["fused silu gelu", "mul", "sum"]
    assert names[-1].startswith("fused gelu_backward")
    assert not {"silu", "gelu", "sigmoid", "gelu_backward"} & set(names)


def test_without_values_the_same_is_fused():
    def compiled(begin):
        x = torch.ones(SIZE, SIZE, device="cuda", requires_grad=True)
        layer = nn.Linear(SIZE, SIZE, device="cuda")
        torch.compile(lambda x: functional.gelu(layer(functional.silu(x)) * 2))(x).sum().backward()

    with_values = launched(compiled)

    assert any(name.startswith("fused") for name, _ in with_values)
    assert launched(compiled, fake=True) == with_values


def test_a_compiled_module_keeps_its_names_and_its_results():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.rand(2, 4)
    results = []

    def compiled(begin):
        wrapped = torch.compile(module)
        results.append((list(wrapped.state_dict()), wrapped(x)))

    launched(compiled)

    [(names, result)] = results
    assert names == [f"_orig_mod.{name}" for name in module.state_dict()]
    assert torch.equal(result, module(x))


def test_who_switches_the_compiler_off_gets_what_was_given(monkeypatch):
    def work(begin):
        layer = nn.Linear(4, 4, device="cuda")
        assert torch.compile(layer, disable=True) is layer
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
        assert torch.compile(layer) is layer
        assert torch.compile(fullgraph=True)(chain) is chain

    launched(work)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_compiled_whole_runs_on_every_rank_also_without_a_model(device, tmp_path):
    path = script(
        tmp_path,
        f"""
        import torch
        @torch.compile(fullgraph=True)
        def twice(x): return x * 2 + 1
        total = twice(torch.ones(4, device="{device}")).sum().item()
        model = torch.compile(torch.nn.Linear(2, 2).to("{device}"))
        shape = tuple(model(torch.ones(3, 2, device="{device}")).shape)
        """,
    )

    assert [(left["total"], left["shape"]) for left in run(path, 2).results] == [(12.0, (3, 2))] * 2
