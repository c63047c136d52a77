"""Operations on virtual CUDA tensors, and kernels of Triton: what is known with data and without."""

import copy
import io
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from collectives.errors import NotSupportedError
from collectives.virtual.gpu import triton_kernels
from sim.errors import RankError
from tests.collectives.virtual.clusters import on_gpus, rank_thread, script


def without_data(script):
    """Return what *script* returns on a rank of a run without data."""
    return on_gpus(script, 1, fake=True).results[0]


def test_a_deep_copy_has_the_values_and_leaves_those_of_the_original_alone():
    def script(rank):
        model = nn.Linear(4, 4).cuda()
        other = copy.deepcopy(model)
        equal = torch.equal(model.weight, other.weight)
        other.weight.data.add_(1)
        return equal, (other.weight - model.weight).mean().item(), type(other.weight) is type(model.weight)

    assert on_gpus(script, 1).results[0] == (True, pytest.approx(1), True)


def test_control_data_is_known_without_data():
    def script(rank):
        sizes = torch.tensor([3, 1], device="cuda")
        part = sizes[1:]
        part += 1
        return sizes.tolist(), list(range(sizes.max())), torch.unique(sizes).shape[0]

    assert without_data(script) == ([3, 2], [0, 1, 2], 2)


def test_what_is_written_through_a_view_is_unknown_in_its_base():
    def script(rank):
        base = torch.zeros(4, device="cuda")
        base[:2].copy_(torch.randn(1 << 10, 2, device="cuda").sum(0))
        return base.sum().item()

    assert math.isnan(without_data(script))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: torch.unique(x), lambda x: int(x.sum()),
        lambda x: x.long().tolist(), lambda x: range(x.long().sum()),
    ],
)  # fmt: skip
def test_what_depends_on_data_is_refused_with_the_line(operation):
    with pytest.raises(RankError, match=r"depends on data, at test_operations\.py:") as raised:
        on_gpus(lambda rank: operation(torch.randn(100, device="cuda")), 1, fake=True)

    assert isinstance(raised.value.__cause__, NotSupportedError)


def test_large_tensors_of_the_cpu_have_no_data():
    def script(rank):
        weights = torch.empty(1 << 17, 1 << 17).uniform_()  # 64 GiB
        return weights.to("cuda").is_cuda, torch.empty(4).is_cpu

    assert without_data(script) == (True, True)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_list_of_a_large_tensor_without_data_has_its_shape_and_no_numbers(device, dtype, is_whole):
    def script(rank):
        large = torch.zeros(1 << 19, 3, dtype=dtype, device=device)
        part = large if is_whole else large[:2]
        listed = part.tolist()
        return listed[-1], [*map(len, (listed, *listed[:2]))] == [len(part), 3, 3]

    outcome = on_gpus(script, 1, fake=True)

    ((last, has_shape),) = outcome.results
    assert has_shape
    assert all(number != number for number in last)
    assert any("without data" in notice and "NaN" in notice for notice in outcome.report.notices)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_without_a_number_that_says_so_is_refused(device, dtype):
    with pytest.raises(RankError, match=r"a list of a tensor \((int64|bool), .* depends on data"):
        on_gpus(lambda rank: torch.zeros(1 << 21, dtype=dtype, device=device).tolist(), 1, fake=True)


def test_data_that_a_tensor_of_the_cpu_gets_without_any_can_be_read():
    def script(rank):
        tensor, file = torch.zeros(1 << 21), io.BytesIO()
        tensor.data = torch.arange(3.0)
        torch.save(tensor, file)
        file.seek(0)
        return tensor.tolist(), repr(tensor), tensor.numpy().tolist(), torch.load(file).tolist()

    numbers = [0.0, 1.0, 2.0]
    assert without_data(script) == (numbers, "tensor([0., 1., 2.])", numbers, numbers)


def test_what_is_kept_of_an_operation_holds_for_its_arguments_alone():
    def script(rank):
        seen = []
        for _ in range(2):  # the second time from what was kept
            base = torch.randn(4, 6, device="cuda")
            turned, row = base.t(), base[2]
            base.unsqueeze_(0)
            number = torch.ones(2, dtype=torch.complex64, device="cuda").conj()
            seen.append(
                (turned.shape, turned.stride(), row.storage_offset(), (base + 1).shape, number.is_conj())
            )
        return seen

    first, second = without_data(script)
    assert first == second == (torch.Size([6, 4]), (1, 6), 12, torch.Size([1, 4, 6]), True)


def test_a_model_without_memory_takes_no_time_to_make():
    def built(rank):
        with torch.device("meta"):
            nn.Linear(1 << 14, 1 << 14)

    assert on_gpus(built, 1, fake=True).times_ps == (0,)


def test_a_call_is_found_once_for_all_devices_and_its_results_are_on_that_of_the_rank(monkeypatch):
    dispatched = Counter()
    original = FakeTensorMode.dispatch

    def dispatch(mode, *args, **options):
        dispatched[rank_thread().rank] += 1
        return original(mode, *args, **options)

    monkeypatch.setattr(FakeTensorMode, "dispatch", dispatch)

    def work(rank):
        matrix = torch.empty(8, 6, device=torch.device("cuda", rank))
        part = torch.split(matrix, [3, 5])[1]
        made = [matrix @ matrix.T, matrix.view(-1)[4:], part, matrix.add_(1), part.sum(0), matrix.half()]
        assert all(tensor.device == torch.device("cuda", rank) for tensor in made)
        return [(tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype) for tensor in made]

    outcome = on_gpus(work, 3, fake=True, fold=False)

    assert outcome.results[1] == outcome.results[2] == outcome.results[0]
    assert dispatched[0] > 0
    assert not dispatched.keys() - {0}


def test_a_call_on_two_devices_of_a_rank_is_none_on_one():
    def work(rank):
        here, other = (torch.empty(4, device=torch.device("cuda", (rank + n) % 4)) for n in range(2))
        return [str((here + here).device), str((other + other).device), str(torch.empty_like(other).device)]

    outcome = on_gpus(work, 4, fake=True, fold=False)

    for rank, devices in enumerate(outcome.results):
        here, other = f"cuda:{rank}", f"cuda:{(rank + 1) % 4}"
        assert devices == [here, other, other]


def test_what_has_no_type_of_its_own_has_the_default_one_whatever_it_was_before():
    def made(own):
        numbers = torch.randn(2, 3, device=own), torch.full((3,), 1.5, device=own)
        return [*numbers, torch.arange(4, device=own) / 2, torch.linspace(0, 1, 3, device=own)]

    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float32]

    def work(rank):
        found = []
        for dtype in dtypes:
            torch.set_default_dtype(dtype)
            tensors = [*made("cpu"), *made("cuda"), *(tensor.cpu() for tensor in made("cuda"))]
            found.append({tensor.dtype for tensor in tensors})
        return found

    results = on_gpus(work, 2, fake=True, fold=False).results

    assert results[0] == results[1] == [{dtype} for dtype in dtypes]


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
