"""Scripts for CUDA and NCCL run unmodified where the CPU stands for devices, and nothing of it stays."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from collectives.errors import NotSupportedError
from collectives.virtual import compute, run
from collectives.virtual.computation import Measured
from sim.errors import RankError
from sim.topology.description import load_network

TRAINING = """
    import os
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    local_rank = int(os.environ["LOCAL_RANK"])
    assert torch.cuda.is_available() and dist.is_nccl_available()
    assert torch.cuda.device_count() == int(os.environ["LOCAL_WORLD_SIZE"])
    torch.cuda.set_device(local_rank)
    assert torch.cuda.current_device() == local_rank
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.benchmark = True
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()

    data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    model = DistributedDataParallel(model.to(device), device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    before = model.module[0].weight.detach().clone()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    side = torch.cuda.Stream()
    start.record()
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side and isinstance(side, torch.cuda.Stream)
        noise = torch.zeros(3, device="cuda")
        side.wait_stream(torch.cuda.default_stream())
    for images, labels in loader:
        images = images.to("cuda:0", non_blocking=True)
        labels = labels.cuda(local_rank, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            output = model(images)
            half = output.dtype
            loss = nn.functional.cross_entropy(output, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    end.record()
    torch.cuda.synchronize()
    milliseconds = start.elapsed_time(end)
    moved = not torch.equal(before, model.module[0].weight)
    dist.barrier(device_ids=[local_rank])

    generator = torch.Generator(device="cuda").manual_seed(3)
    drawn = torch.randn(3, device=device, generator=generator)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    kind = mesh.device_type
    path = os.environ["CHECKPOINT"]
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    for place in ("cuda:0", device, {"cuda:0": "cuda:1"}, lambda storage, place: storage.cuda(0), None):
        loaded = torch.load(path, map_location=place)
    torch.set_default_device("cuda")
    default = torch.zeros(1).device.type
    torch.set_default_device(None)
    accelerator = torch.accelerator.current_accelerator()
    torch.accelerator.set_device_index(local_rank)
    torch.accelerator.synchronize()
    indexed = torch.zeros(1, device=f"{accelerator}:{local_rank}")
    with torch.cuda.device(0), torch.device("cuda"):
        inside = torch.ones(2).device.type
    torch.cuda.nvtx.range_push("x")
    torch.cuda.nvtx.range_pop()
    used = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    name = torch.cuda.get_device_name(0)

    sharded = FullyShardedDataParallel(nn.Linear(8, 8).cuda(), device_id=torch.cuda.current_device())
    sharded(torch.ones(1, 8, device="cuda")).sum().backward()
    layer = nn.Linear(8, 8, device="cuda")
    fully_shard(layer, mesh=mesh)
    layer(torch.ones(1, 8).cuda()).sum().backward()
    compiled = torch.compile(nn.Linear(4, 4).to(device), backend="aot_eager")
    compiled(torch.ones(1, 4, device="cuda")).sum().backward()
    assert nn.Linear(2, 2).to(local_rank).weight.to(0).is_cpu and torch.as_tensor(5).item() == 5
    pinned = torch.ones(2, pin_memory=True).pin_memory().type("torch.cuda.DoubleTensor").dtype
"""


def state_of_torch() -> dict[str, Any]:
    """What mapping devices might leave changed."""
    modules = (torch.cuda, torch.accelerator, torch.cuda.nvtx, c10d, dist, torch.serialization)
    places = {
        f"{module.__name__}.{name}": value for module in modules for name, value in vars(module).items()
    }
    classes = (
        DistributedDataParallel, DeviceMesh, DataLoader, torch.autocast, torch.amp.GradScaler,
        torch.nn.SyncBatchNorm,
    )  # fmt: skip
    places |= {f"{kind.__name__}.{name}": value for kind in classes for name, value in vars(kind).items()}
    changing = ("_world", "_group_count", "_default_pg_init_method")
    places = {name: id(value) for name, value in places.items() if not name.endswith(changing)}
    return places | {
        "torch": [id(own) for own in (torch.Stream, torch.Event, torch.Generator, torch.set_default_device)],
        "kernels": [id(value) for name, value in vars(torch).items() if name.startswith("batch_norm")],
        "benchmark": torch.backends.cudnn.benchmark,
        "modes": torch._C._len_torch_function_stack(),
    }


def test_a_script_for_cuda_and_nccl_runs_on_the_cpu_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed.fsdp  # what it leaves when it is imported is its own

    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAINING))
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "model.pt"))
    before = state_of_torch()

    outcome = run(path, 2, "dgx-h100", compute=Measured())

    assert state_of_torch() == before
    for left in outcome.results:
        assert left["moved"]
        assert left["half"] == torch.float16
        assert left["device"] == torch.device("cpu")
        assert left["kind"] == left["default"] == left["inside"] == "cpu"
        assert left["indexed"].device.type == left["noise"].device.type == "cpu"
        assert left["drawn"].tolist() == torch.randn(3, generator=torch.Generator().manual_seed(3)).tolist()
        assert 0 < left["milliseconds"] / 1e3 < outcome.seconds
        assert (left["used"], left["name"], left["pinned"]) == ((0, 0), "virtual GPU", torch.float64)
        assert left["loaded"].keys() == left["model"].state_dict().keys()
    assert all(spent.compute_seconds > 0 for spent in outcome.report.ranks)
    weights = [left["model"].module[0].weight.tolist() for left in outcome.results]
    assert weights[0] == weights[1]
    mapped, memory = outcome.report.notices
    assert mapped.startswith("cuda mapped to CPU: torch.cuda.is_available, ")
    for thing in ("Tensor.to", "torch.autocast", "DataLoader(pin_memory=…)", "zeros(device=…)", "DeviceMesh"):
        assert thing in mapped
    assert "memory" in memory


def test_events_tell_virtual_time() -> None:
    def work(rank: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        compute("2.5ms")
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    assert run(work, 2, compute=Measured(1e-9)).results == [2.5, 2.5]


@pytest.mark.parametrize("name", ["CUDAGraph", "make_graphed_callables", "cudart"])
def test_what_means_nothing_on_the_cpu_is_refused_by_name_with_the_way_out(name: str) -> None:
    with pytest.raises(RankError, match=f"torch.cuda.{name} means nothing .* --processes") as caught:
        run(lambda rank: getattr(torch.cuda, name)(), 1, compute=Measured())

    assert isinstance(caught.value.__cause__, NotSupportedError)


def batch_norm(inputs: torch.Tensor, momentum: float | None, *, synchronized: bool) -> list[torch.Tensor]:
    """Return what a layer makes of *inputs*: its output, gradients and running statistics."""
    layer: Any = torch.nn.BatchNorm2d(3, momentum=momentum).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
        layer.bias.copy_(torch.tensor([3.0, 2.0, 1.0]))
    model: Any = torch.nn.SyncBatchNorm.convert_sync_batchnorm(layer) if synchronized else layer
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


@pytest.mark.parametrize("compute_model", [None, Measured()])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_norm_that_is_synchronized_sees_the_whole_batch(
    momentum: float | None, compute_model: Measured | None
) -> None:
    whole = torch.randn(6, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parts = whole.split([1, 2, 3])

    def work(rank: int) -> list[torch.Tensor]:
        dist.init_process_group("nccl")
        return batch_norm(parts[rank].clone(), momentum, synchronized=True)

    results = run(work, 3, compute=compute_model).results
    expected = batch_norm(whole.clone(), momentum, synchronized=False)

    for number, value in enumerate(expected):
        got = torch.cat([own[number] for own in results]) if number < 3 else results[0][number]
        torch.testing.assert_close(got, value, rtol=1e-10, atol=1e-10)


def modes_of(tmp_path: Path, text: str, *argv: str) -> int:
    path = tmp_path / "script.py"
    path.write_text(f"import torch\n{text}\nmodes = torch._C._len_torch_function_stack()\n")
    topology = load_network("switch-100g").topology(1)
    return int(run(path, network=topology, argv=argv, compute=Measured()).results[0]["modes"])


def test_only_who_says_cuda_pays_for_the_mapping_of_devices(tmp_path: Path) -> None:
    (tmp_path / "own_model.py").write_text("import torch\nDEVICE = torch.device('cuda')\n")

    assert modes_of(tmp_path, "torch.distributed.init_process_group('nccl')") == 0
    assert modes_of(tmp_path, "name = 'cuda'") == 1
    assert modes_of(tmp_path, "", "--device=cuda") == 1
    assert modes_of(tmp_path, "import own_model\nassert own_model.DEVICE.type == 'cpu'") == 1
    assert modes_of(tmp_path, "getattr(torch, 'cu' + 'da').is_available()") == 1  # as a library would


def test_a_device_found_inside_of_another_mode_is_mapped_after_it(tmp_path: Path) -> None:
    body = (
        "with torch.device('meta'):\n"
        "    getattr(torch, 'cu' + 'da').synchronize()\n"
        "    empty = torch.empty(1)\n"
        "assert empty.is_meta\nassert torch.device('cu' + 'da').type == 'cpu'"
    )

    assert modes_of(tmp_path, body) == 1


def test_torch_itself_sees_the_devices_that_there_are() -> None:
    def work(rank: int) -> tuple[bool, str | None]:
        return torch.cuda.is_available(), torch._utils._get_available_device_type()

    there_is = torch._utils._get_available_device_type()

    assert run(work, 1, compute=Measured()).results == [(True, there_is)]


def test_threads_that_a_rank_starts_see_its_devices() -> None:
    import threading

    seen: list[bool] = []

    def work(rank: int) -> None:
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.is_available()))
        thread.start()
        thread.join()

    run(work, 1, compute=Measured())

    assert seen == [True]


@pytest.mark.parametrize("compute_model", [None, Measured()])
def test_a_rank_leaves_no_mode_behind_on_its_thread(
    monkeypatch: pytest.MonkeyPatch, compute_model: Measured | None
) -> None:
    forget, left = torch._C._distributed_c10d._unregister_all_process_groups, []

    def at_the_end() -> None:
        left.append(torch._C._len_torch_function_stack())
        forget()

    monkeypatch.setattr(torch._C._distributed_c10d, "_unregister_all_process_groups", at_the_end)
    run(lambda rank: torch.set_default_device(f"cuda:{rank}"), 2, compute=compute_model)

    assert left == [0, 0]
