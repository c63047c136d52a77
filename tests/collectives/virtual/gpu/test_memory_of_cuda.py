"""Memory of virtual CUDA devices, as scripts see it and as reports say it: cases counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from collectives.virtual import run
from sim.errors import RankError
from tests.collectives.virtual.gpu.memory_cases import (
    ACTIVATION,
    BATCH,
    GPU,
    LAYERS,
    MIB,
    WEIGHT,
    WIDTH,
    memory_of,
    report_of,
    stack,
    with_and_without_data,
)


@with_and_without_data
def test_functions_of_torch_answer_as_with_cuda(fake: bool) -> None:
    def script(rank: int) -> None:
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

    report_of(script, fake=fake)


@with_and_without_data
def test_the_peak_of_adamw_is_five_times_the_parameters(fake: bool) -> None:
    def script(rank: int) -> None:
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


def test_beyond_the_memory_of_a_device_the_script_gets_an_error_and_the_report_tells_of_it() -> None:
    def script(rank: int) -> None:
        model = stack()
        model(torch.ones(256 * BATCH, WIDTH, device="cuda"))

    with pytest.raises(RankError, match=r"CUDA out of memory\. Tried to allocate 256\.00 MiB") as caught:
        report_of(script, fake=True, device=replace(GPU, memory_bytes=600 * MIB))

    memory = caught.value.report.memory
    assert not memory.fits
    assert memory.peak_bytes == 16 * MIB + 3 * 256 * MIB == sum(memory.by_category.values())
    assert memory.at.startswith("iteration 1, forward of 1 (aten.mm")
    assert memory.to_json()["limit_bytes"] == 600 * MIB


def test_without_a_limit_the_report_tells_the_whole_peak() -> None:
    def script(rank: int) -> None:
        with torch.no_grad():
            stack()(torch.ones(256 * BATCH, WIDTH, device="cuda"))

    memory = memory_of(script, fake=True, device=replace(GPU, memory_bytes=600 * MIB), memory_limit="off")

    assert (memory.fits, memory.peak_bytes) == (False, 16 * MIB + 3 * 256 * MIB)


def test_a_script_can_look_for_the_largest_batch_that_fits() -> None:
    found = []

    def script(rank: int) -> None:
        model = stack()
        batch = 1024 * BATCH
        while True:
            try:
                model(torch.ones(batch, WIDTH, device="cuda"))
            except torch.OutOfMemoryError:
                batch //= 2
            else:
                break
        found.append(batch // BATCH)

    memory = memory_of(script, fake=True, memory_limit="600MB")

    assert found == [64]  # the batch and four outputs of 64 MiB; of 128 MiB they do not fit
    assert memory.fits


def test_without_a_gpu_no_memory_is_reported() -> None:
    report = run(lambda rank: torch.ones(8).sum(), 1).report

    assert report.memory is None
    assert "memory" not in report.to_json()
