"""A script for CUDA and NCCL on virtual CUDA devices: everything people call of torch.cuda on the way."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
import torch.distributed.fsdp  # what it leaves when it is imported is its own

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from tests.collectives.virtual.devices.test_devices import TRAINING, state_of_torch

SCRIPT = (
    textwrap.dedent(TRAINING).replace('images.to("cuda:0"', "images.to(device").replace("is_cpu", "is_cuda")
)


@pytest.mark.parametrize("fake", [True, False])
def test_a_script_for_cuda_and_nccl_finds_them_and_leaves_nothing(
    fake: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "model.pt"))
    before = state_of_torch()

    outcome = run(path, 2, "dgx-h100", compute=Roofline("h100"), fake=fake)

    assert state_of_torch() == before
    left = outcome.results[0]
    assert left["moved"]
    assert left["half"] == torch.float16
    assert left["device"] == torch.device("cuda:0")
    assert left["kind"] == left["default"] == left["inside"] == "cuda"
    assert left["indexed"].is_cuda
    assert 0 < left["milliseconds"] / 1e3 < outcome.seconds
    assert left["name"] == "h100"
    assert 0 < left["used"][0] <= left["used"][1]
    assert left["loaded"].keys() == left["model"].state_dict().keys()
