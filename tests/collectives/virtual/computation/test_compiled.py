"""Compiled regions: their element-wise operations are one kernel, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from collectives.virtual import run
from sim import Device
from sim.units import SECOND
from tests.collectives.virtual.clusters import script
from tests.collectives.virtual.issued import launched_by, on_own_gpus

GPU = Device(
    "gpu",
    {"float32": 2**62},
    memory_bandwidth=SECOND,  # a byte: 1 ps
    launch_ps=1000,
    kind="gpu",
    peaks={"float32": 2**62},
    copy_bandwidth=SECOND,
)
SIZE = 1000
NBYTES = 4 * SIZE


def launched(work, fake=False):
    """Return names and times of the kernels that *work* launches."""
    return on_own_gpus(lambda: launched_by(work), GPU, fake=fake).results[0]


def chain(x, y):
    return torch.relu(x * 2 + y).sigmoid()


def vector():
    return torch.empty(SIZE, device="cuda")


def test_element_wise_operations_of_a_compiled_function_are_one_pass():
    eager = launched(lambda: chain(vector(), vector()))
    compiled = launched(lambda: torch.compile(chain)(vector(), vector()))

    assert [time for _, time in eager] == [tensors * NBYTES + 1000 for tensors in (2, 3, 2, 2)]
    assert compiled == [("fused mul add relu", 3 * NBYTES + 1000)]


def test_what_is_kept_of_a_fused_kernel_is_written():
    kept = []

    def keeping(x, y):
        kept.append(x * 2)
        return kept[-1] + y

    found = launched(lambda: torch.compile(keeping)(vector(), vector()))

    assert found == [("fused mul add", 4 * NBYTES + 1000)]


def test_another_kernel_ends_a_fused_one_and_is_launched_behind_it():
    kept = []

    def compiled():
        a = torch.empty(10, 10, device="cuda")
        kept.append(torch.compile(lambda x: (x * 2 + 1) @ a * 3)(a))

    assert [name for name, _ in launched(compiled)] == ["fused mul add", "mm", "fused mul"]


def test_the_backward_pass_of_a_compiled_module_is_fused_too_and_what_surrounds_it_is_not():
    class Activated(nn.Module):
        def forward(self, x):
            return functional.gelu(functional.silu(x))

    def compiled():
        (torch.compile(Activated())(vector().requires_grad_()) * 2).sum().backward()

    found = launched(compiled)

    names = [name for name, _ in found]
    assert names[:3] == ["fused silu gelu", "mul", "sum"]
    assert names[-1].startswith("fused gelu_backward")
    assert not {"silu", "gelu", "sigmoid", "gelu_backward"} & set(names)
    assert launched(compiled, fake=True) == found


def test_a_compiled_module_keeps_its_names_and_its_results():
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4)

    def compiled():
        wrapped = torch.compile(module)
        return list(wrapped.state_dict()), wrapped(x)

    names, result = on_own_gpus(compiled, fake=False).results[0]

    assert names == [f"_orig_mod.{name}" for name in module.state_dict()]
    assert torch.equal(result, module(x))


def test_who_switches_the_compiler_off_gets_what_was_given(monkeypatch):
    def work():
        layer = nn.Linear(4, 4, device="cuda")
        assert torch.compile(layer, disable=True) is layer
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
        assert torch.compile(layer) is layer
        assert torch.compile(fullgraph=True)(chain) is chain

    on_own_gpus(work)


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
