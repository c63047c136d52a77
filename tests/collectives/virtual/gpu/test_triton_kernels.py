"""Kernels of Triton: charged as one launch each without data, refused by name with data."""

import sys
from pathlib import Path

import pytest

from collectives.virtual.gpu import triton_kernels
from sim.errors import RankError
from tests.collectives.virtual.clusters import on_gpus, script

LAUNCHING = """
class JITFunction:
    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args, grid, warmup, **kwargs):
        return "compiled"
"""
CHOOSING = """
class Config:
    def __init__(self, meta):
        self.meta = meta

    def all_kwargs(self):
        return self.meta

class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs = fn, configs

    def run(self, *args, **kwargs):
        raise RuntimeError("this would measure")

"""
SCRIPT = """
import torch
from compiler_of_kernels.autotuner import Autotuner, Config
from compiler_of_kernels.jit import JITFunction

def twice(x, out, BLOCK):
    raise RuntimeError("this is no Python")

x = torch.ones(1 << 24, device="cuda")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1, device="cuda"))])
kernel = Autotuner(JITFunction(twice), [Config({"BLOCK": 1024}), Config({"BLOCK": 2048})])
for _ in range(3):
    for _ in range(5):
        kernel.run(x, torch.empty_like(x), grid=(1,), warmup=False)
        JITFunction(twice)[(1,)](x, torch.empty_like(x), BLOCK=1024)
    optimizer.step()
"""


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Have a package that launches as Triton does, which torch would look at more closely, in its place."""
    place = tmp_path / "site-packages" / "compiler_of_kernels"
    place.mkdir(parents=True)
    for name, text in {"__init__": "", "jit": LAUNCHING, "autotuner": CHOOSING}.items():
        (place / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.setattr(triton_kernels, "_LAUNCHES", "compiler_of_kernels.jit")
    monkeypatch.setattr(triton_kernels, "_CHOICES", "compiler_of_kernels.autotuner")
    yield
    for name in [name for name in sys.modules if name.startswith("compiler_of_kernels")]:
        del sys.modules[name]


@pytest.mark.usefixtures("triton")
def test_without_data_a_launch_is_one_kernel_that_reads_and_writes_its_tensors(tmp_path: Path):
    report = on_gpus(script(tmp_path, SCRIPT), 1, fake=True).report

    seconds = report.steady().seconds
    least = 10 * 2 * (4 << 24) / 3.35e12  # ten launches, each of which moves two tensors
    assert least < seconds < 3 * least


@pytest.mark.usefixtures("triton")
def test_with_data_a_launch_is_refused_by_name_and_afterwards_all_is_as_before(tmp_path: Path):
    with pytest.raises(RankError, match=r"the kernel twice of Triton .* without data \(--fake\)"):
        on_gpus(script(tmp_path, SCRIPT), 1)

    launching = sys.modules["compiler_of_kernels.jit"]
    assert launching.JITFunction(print)[(1,)]() == "compiled"
