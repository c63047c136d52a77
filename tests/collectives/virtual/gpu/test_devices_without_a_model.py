"""Devices where none is modelled, or none is used: the CPU computes, and nothing of it stays."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from collectives import NotSupportedError
from collectives.virtual import Measured, Roofline, VirtualRun, compute, run
from collectives.virtual.gpu import instant_execution
from collectives.virtual.gpu.computing import value_on_cpu
from collectives.virtual.gpu.shapes import Likeness
from sim import RankError
from sim.units import SECOND
from tests.collectives.virtual.clusters import in_group, rank_thread, script
from tests.given import switch

instant_and_measured = pytest.mark.parametrize(
    "compute_model", [None, Measured(1e-9)], ids=["instant", "measured"]
)


@instant_and_measured
def test_events_and_streams_tell_virtual_time(compute_model):
    def work(rank):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        compute("2.5ms")
        with torch.cuda.stream(torch.cuda.Stream()):
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    assert run(work, 2, compute=compute_model).results == [2.5, 2.5]


@pytest.mark.parametrize("name", ["MemPool", "CUDAPluggableAllocator", "cudart"])
def test_what_means_nothing_on_virtual_devices_is_refused_by_name_with_the_way_out(name):
    with pytest.raises(RankError, match=f"torch.cuda.{name} means nothing .* --processes") as caught:
        run(lambda rank: getattr(torch.cuda, name)(), 1, compute=Measured())

    assert isinstance(caught.value.__cause__, NotSupportedError)


def batch_norm(inputs: torch.Tensor, momentum: float | None, *, synchronized: bool) -> list[torch.Tensor]:
    """Return what a layer makes of *inputs*: its output, gradients and running statistics."""
    layer = torch.nn.BatchNorm2d(3, momentum=momentum).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
        layer.bias.copy_(torch.tensor([3.0, 2.0, 1.0]))
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(layer) if synchronized else layer
    if synchronized:
        layer, model = model, DistributedDataParallel(model)
    inputs.requires_grad_()
    for _ in range(2):
        model.zero_grad()
        inputs.grad = None
        output = model(inputs)
        (output**3).sum().backward()
    assert inputs.grad is not None
    scale = dist.get_world_size() if synchronized else 1  # averages become sums
    layer.eval()
    return [
        output.detach(), inputs.grad, layer(inputs).detach(), layer.running_mean, layer.running_var,
        layer.weight.grad * scale, layer.bias.grad * scale,
    ]  # fmt: skip


@instant_and_measured
@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_norm_that_is_synchronized_sees_the_whole_batch(momentum, compute_model):
    whole = torch.randn(6, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parts = whole.split([1, 2, 3])

    results = in_group(
        lambda rank: batch_norm(parts[rank].clone(), momentum, synchronized=True), 3, compute=compute_model
    ).results

    for number, value in enumerate(batch_norm(whole.clone(), momentum, synchronized=False)):
        got = torch.cat([own[number] for own in results]) if number < 3 else results[0][number]
        torch.testing.assert_close(got, value, rtol=1e-10, atol=1e-10)


@instant_and_measured
@pytest.mark.parametrize(
    ("text", "argv", "modes"),
    [
        ("torch.distributed.init_process_group('nccl')", [], 0),
        ("name = 'cuda'", [], 1),
        ("", ["--device=cuda"], 1),
        ("import own_model\nassert own_model.DEVICE.type == 'cu' + 'da'", [], 1),
        ("assert getattr(torch, 'cu' + 'da').is_available()", [], 1),
    ],
    ids=["nccl", "the word", "an argument", "a module of its own", "as a library would"],
)
def test_only_who_says_cuda_pays_for_its_devices(compute_model, tmp_path, text, argv, modes):
    (tmp_path / "own_model.py").write_text("import torch\nDEVICE = torch.device('cuda')\n")
    path = script(tmp_path, f"import torch\n{text}\nmodes = torch._C._len_torch_dispatch_stack()\n")

    [left] = run(path, network=switch(1), argv=argv, compute=compute_model).results

    assert left["modes"] == modes


def test_of_an_operation_on_a_device_the_kernel_alone_is_measured(monkeypatch):
    worked_ns = [0]
    monkeypatch.setattr(time, "thread_time_ns", lambda: worked_ns[0])

    def slow(seconds, function):
        def slowly(*args, **options):
            worked_ns[0] += seconds * 10**9
            return function(*args, **options)

        return slowly

    def work(rank):
        x = torch.ones(4, device="cuda")
        began_ps = rank_thread().now_ps()
        monkeypatch.setattr(instant_execution, "value_on_cpu", slow(5, value_on_cpu))  # the kernel
        monkeypatch.setattr(Likeness, "of", slow(100, Likeness.of))
        x + 1
        worked_ns[0] += 10**9  # in Python
        return rank_thread().now_ps() - began_ps

    assert run(work, 1, compute=Measured()).results == [6 * SECOND]


@instant_and_measured
def test_a_rank_leaves_no_mode_behind_on_its_thread(monkeypatch, compute_model):
    forget, left = torch._C._distributed_c10d._unregister_all_process_groups, []

    def at_the_end():
        left.append(torch._C._len_torch_function_stack())
        forget()

    monkeypatch.setattr(torch._C._distributed_c10d, "_unregister_all_process_groups", at_the_end)
    run(lambda rank: torch.set_default_device(f"cuda:{rank}"), 2, compute=compute_model)

    assert left == [0, 0]


USES: dict[str, Callable[[], object]] = {
    "a tensor": lambda: torch.ones(1, device="cuda"), "a copy": lambda: torch.ones(1).cuda(),
    "a device": lambda: torch.cuda.set_device(0),
}  # fmt: skip


def test_what_a_rank_returns_is_of_the_cpu_and_has_the_kind_and_the_gradient_that_it_had():
    def work(rank):
        layer = torch.nn.Linear(2, 1, bias=False, device="cuda")
        layer(torch.ones(1, 2, device="cuda")).sum().backward()
        return layer.weight, torch.nn.Parameter(torch.ones(2, device="cuda"), False), layer.weight.detach()

    trained, frozen, value = run(work, 1).results[0]

    assert {own.device.type for own in (trained, frozen, value)} == {"cpu"}
    assert [type(own) for own in (trained, frozen, value)] == [
        torch.nn.Parameter, torch.nn.Parameter, torch.Tensor
    ]  # fmt: skip
    assert [own.requires_grad for own in (trained, frozen, value)] == [True, False, False]
    assert trained.grad.tolist() == [[1, 1]]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("options", [{}, {"compute": Roofline("h100")}], ids=["no model", "h100"])
def test_devices_are_initialized_by_their_first_use(use, options):
    def work(rank):
        torch.cuda.is_available(), torch.cuda.device_count(), torch.manual_seed(0)
        before = torch.cuda.is_initialized(), bool(torch.cuda._initialized)
        USES[use]()
        return before, torch.cuda.is_initialized(), bool(torch.cuda._initialized)

    assert run(work, network=switch(1), **options).results == [((False, False), True, True)]


def test_a_mesh_makes_the_device_of_a_rank_current_that_has_used_none():
    def work(rank):
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        init_device_mesh("cuda", (2,))
        return torch.cuda.current_device()

    assert run(work, 2, "dgx-h100").results == [0, 1]


TRAINING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
{asked}
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    batch = torch.randn(16, 32)
    loss = torch.nn.functional.cross_entropy(model(batch), torch.randint(4, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def trained(folder: Path, *, asked: str = "", fake: bool = False) -> VirtualRun:
    path = script(folder, TRAINING.format(asked=asked))
    return run(path, 2, "dgx-h100", compute=Roofline("h100"), fake=fake)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> VirtualRun:
    """The training on the CPU that says nothing of a GPU."""
    return trained(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "asked",
    [
        "# this would also run on cuda, or any accelerator",
        "if torch.cuda.is_available(): torch.cuda.manual_seed_all(0); torch.cuda.device_count()",
        "torch.cuda.synchronize()",
    ],
)
@pytest.mark.parametrize("fake", [False, True], ids=["data", "no data"])
def test_words_and_questions_about_cuda_change_no_time(tmp_path, plain, asked, fake):
    said = trained(tmp_path, asked=asked, fake=fake)

    assert said.times_ps == plain.times_ps
    assert said.report.iterations == plain.report.iterations
    assert said.report.stands_in


@pytest.mark.parametrize(
    "use", ["torch.ones(1, device='cuda')", "torch.ones(1).cuda()", "torch.cuda.set_device(0)"]
)
def test_who_uses_a_device_has_tensors_of_the_cpu_on_the_host(tmp_path, plain, use):
    both = trained(tmp_path, asked=use)

    assert both.report.steady().compute_seconds == 0 < plain.report.steady().compute_seconds
    assert not both.report.stands_in
