"""Memory of virtual CUDA devices, as scripts see it and as reports say it: cases counted by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline, run
from collectives.virtual.gpu.values import value_of
from collectives.virtual.memory.memories import MemoryReport
from sim import RankError, load_device
from tests.collectives.virtual.clusters import Work, on_gpus

MIB = 2**20
WIDTH, BATCH, LAYERS = 1024, 256, 4
WEIGHT = WIDTH * WIDTH * 4
ACTIVATION = BATCH * WIDTH * 4
GPU = load_device("h100")
CUDA = torch.device("cuda")

with_and_without_data = pytest.mark.parametrize("fake", [True, False])


def memory_of(work: Work, ranks: int = 1, **options) -> MemoryReport:
    memory = on_gpus(work, ranks, **options).report.memory
    assert memory is not None
    return memory


def stack(**options) -> nn.Sequential:
    return nn.Sequential(
        *[nn.Linear(WIDTH, WIDTH, bias=False, device=CUDA, **options) for _ in range(LAYERS)]
    )


@with_and_without_data
def test_functions_of_torch_answer_as_with_cuda(fake):
    def script(rank):
        assert torch.cuda.memory_allocated() == 0
        held = torch.empty(WIDTH, WIDTH, device="cuda")
        torch.empty(WIDTH, WIDTH, device="cuda")
        assert torch.cuda.memory_allocated() == WEIGHT
        assert torch.cuda.max_memory_allocated() == 2 * WEIGHT
        assert torch.cuda.memory_reserved() == torch.cuda.max_memory_reserved() == 20 * MIB
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == torch.accelerator.max_memory_allocated() == WEIGHT
        statistics = torch.cuda.memory_stats()
        assert statistics["allocated_bytes.large_pool.current"] == WEIGHT
        assert statistics["num_ooms"] == 0
        free, total = torch.cuda.mem_get_info()
        assert (free, total) == (GPU.memory_bytes - 20 * MIB, GPU.memory_bytes)
        assert "4096 KiB" in torch.cuda.memory_summary()
        del held
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0

    on_gpus(script, 1, fake=fake)


@with_and_without_data
def test_the_peak_of_adamw_is_five_times_the_parameters(fake):
    def script(rank):
        model = stack()
        optimizer = torch.optim.AdamW(model.parameters())
        batch = torch.ones(BATCH, WIDTH, device="cuda")
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(batch).sum()
            loss.backward()
            optimizer.step()

    memory = memory_of(script, fake=fake)

    assert memory.by_category["parameters"] == memory.by_category["gradients"] == LAYERS * WEIGHT
    assert memory.by_category["optimizer"] == 3 * LAYERS * WEIGHT  # two states, and the root of one
    assert memory.by_category["other"] == ACTIVATION
    assert memory.by_category["activations"] == 512  # the loss
    assert sum(memory.by_category.values()) == sum(memory.by_module.values()) == memory.peak_bytes
    assert memory.by_module["0"] == 4 * WEIGHT  # all but the root
    assert memory.at.startswith("iteration 1, optimizer step")
    assert memory.fits


def test_beyond_the_memory_of_a_device_the_script_gets_an_error_and_the_report_tells_the_whole_peak():
    def script(rank):
        with torch.no_grad():
            stack()(torch.ones(256 * BATCH, WIDTH, device="cuda"))

    small = replace(GPU, memory_bytes=600 * MIB)
    whole = memory_of(script, fake=True, device=small, memory_limit="off")
    said = r"CUDA out of memory\. Tried to allocate 256\.00 MiB\. GPU 0 has a total capacity of 600\.00 MiB "
    with pytest.raises(RankError, match=rf"{said}.*parameters 16\.00 MiB") as caught:
        on_gpus(script, 1, fake=True, device=small)

    memory = caught.value.report.memory
    for own in (memory, whole):
        assert (own.fits, own.to_json()["limit_bytes"]) == (False, 600 * MIB)
    assert (
        memory.peak_bytes == whole.peak_bytes == 16 * MIB + 3 * 256 * MIB == sum(memory.by_category.values())
    )
    assert memory.at.startswith("iteration 1, forward of 1 (aten.mm")
    assert memory.text.startswith("does not fit: 0.77 of 0.59 GiB at iteration 1, forward of 1")


def test_a_script_can_look_for_the_largest_batch_that_fits():
    found = []

    def script(rank):
        model, batch = stack(), 1024 * BATCH
        while True:
            try:
                model(torch.ones(batch, WIDTH, device="cuda"))
            except torch.OutOfMemoryError:
                batch //= 2
            else:
                break
        found.append((batch // BATCH, torch.cuda.memory_stats()["num_ooms"]))

    memory = memory_of(script, fake=True, memory_limit="600MB")

    assert found == [(64, 4)]  # the batch and four outputs of 64 MiB; of 128 MiB they do not fit
    assert memory.fits


def test_without_a_gpu_no_memory_is_reported():
    report = run(lambda rank: torch.ones(8).sum(), 1).report

    assert report.memory is None
    assert "memory" not in report.to_json()


def test_buckets_of_ddp_are_buffers_of_collectives():
    def script(rank):
        dist.init_process_group("nccl")
        model = DistributedDataParallel(stack(), device_ids=[0], gradient_as_bucket_view=False)
        for _ in range(2):
            model(torch.ones(BATCH, WIDTH, device="cuda")).sum().backward()
            assert torch.cuda.memory_allocated() == 3 * LAYERS * WEIGHT  # no bucket of before lives on

    memory = memory_of(script, 2, fake=True)

    assert memory.by_category["collective_buffers"] == LAYERS * WEIGHT
    assert memory.by_category["gradients"] == LAYERS * WEIGHT


@with_and_without_data
def test_fsdp_holds_its_shards_and_gathers_one_layer_at_a_time(fake):
    def script(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        model = stack()
        for layer in (*model, model):
            fully_shard(layer)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.ones(BATCH, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    for held in on_gpus(script, 4, fake=fake).results:
        assert 0 <= held - 3 * LAYERS * WEIGHT // 4 < 8192


@pytest.mark.parametrize("compute", [None, Roofline("h100")], ids=["no model", "h100"])
def test_what_is_gathered_and_freed_takes_no_memory_of_the_host(compute):
    def work(rank):
        dist.init_process_group("nccl")
        model = fully_shard(nn.Linear(8, 8, bias=False).cuda())
        sizes = []
        for reshards in (False, True):
            model.set_reshard_after_backward(reshards)
            model(torch.ones(1, 8, device="cuda")).sum().backward()
            [parameter] = model._get_fsdp_state()._fsdp_param_group.fsdp_params
            [whole] = parameter.all_gather_outputs
            value = value_of(whole)
            sizes.append(value.untyped_storage().nbytes())
        return sizes[0], sizes[1]

    assert run(work, 2, "dgx-h100", compute=compute).results == [(256, 0)] * 2


@pytest.mark.slow
def test_the_peak_of_llama_on_8_gpus_is_within_five_percent_of_what_torchtitan_has_measured(monkeypatch):
    """What 128 need, `benchmarks/llama_memory.py` tells under ``testbed run --fake --ranks 128``."""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    script = Path(__file__).parents[4] / "benchmarks" / "llama_memory.py"

    memory = memory_of(script, 8, device="h200", fake=True, argv=["--steps", "2"])

    assert memory.reserved_bytes / 2**30 == pytest.approx(82.4, rel=0.05)
