"""A script for CUDA and NCCL, unmodified: all that people call of torch.cuda is there, and nothing stays."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.distributed.fsdp  # what it leaves when it is imported is its own
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from collectives.virtual import Measured, Roofline, run
from collectives.virtual.gpu.accelerator import NO_MEMORY
from tests.collectives.virtual.clusters import script

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

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    kind = mesh.device_type
    path = os.environ["CHECKPOINT"]
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    loaded = torch.load(path, map_location=device)
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
    assert nn.Linear(2, 2).to(local_rank).weight.to(0).is_cuda and torch.as_tensor(5).item() == 5
    pinned = torch.ones(2, pin_memory=True).pin_memory().type("torch.cuda.DoubleTensor").dtype
    said = [
        device.type, kind, default, inside, indexed.device.type, noise.device.type, images.device.type
    ]
"""


def state_of_torch() -> dict[str, Any]:
    """What mapping devices might leave changed."""
    owners = (
        torch.cuda, torch.accelerator, torch.cuda.nvtx, c10d, dist, torch.serialization,
        DistributedDataParallel, DeviceMesh, DataLoader, torch.autocast, torch.amp.GradScaler,
        torch.nn.SyncBatchNorm,
    )  # fmt: skip
    changing = ("_world", "_group_count", "_default_pg_init_method")
    places = {
        f"{owner.__name__}.{name}": id(value)
        for owner in owners for name, value in vars(owner).items() if not name.endswith(changing)
    }  # fmt: skip
    return places | {
        "torch": [id(own) for own in (torch.Stream, torch.Event, torch.Generator, torch.set_default_device)],
        "kernels": [id(value) for name, value in vars(torch).items() if name.startswith("batch_norm")],
        "benchmark": torch.backends.cudnn.benchmark,
        "modes": torch._C._len_torch_function_stack(),
    }


@pytest.mark.parametrize("way", ["measured", "instant", "with data", "without data"])
def test_a_script_for_cuda_and_nccl_finds_them_and_leaves_nothing(way, tmp_path, monkeypatch):
    compute = {"measured": Measured(), "instant": None}.get(way, Roofline("h100"))
    is_modelled = isinstance(compute, Roofline)
    text = TRAINING
    if is_modelled:  # devices of ranks are told apart
        text = text.replace('images.to("cuda:0"', "images.to(device")
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "model.pt"))
    before = state_of_torch()

    outcome = run(script(tmp_path, text), 2, "dgx-h100", compute=compute, fake=way == "without data")

    assert state_of_torch() == before
    for left in outcome.results:
        assert left["moved"]
        assert left["half"] == torch.float16
        assert set(left["said"]) == {"cuda"}
        assert 0 < left["milliseconds"] / 1e3 < outcome.seconds
        assert left["name"] == ("h100" if is_modelled else "virtual GPU")
        assert 0 < left["used"][0] <= left["used"][1] if is_modelled else left["used"] == (0, 0)
        assert left["loaded"].keys() == left["model"].state_dict().keys()
        assert left["indexed"].is_cuda == is_modelled  # otherwise there is no device after the run
        assert left["pinned"] == torch.float64
    if way == "measured":
        assert all(spent.compute_seconds > 0 for spent in outcome.report.ranks)
    if not is_modelled:
        weights = [left["model"].module[0].weight.tolist() for left in outcome.results]
        assert weights[0] == weights[1]
        assert outcome.report.notices == (NO_MEMORY,)
