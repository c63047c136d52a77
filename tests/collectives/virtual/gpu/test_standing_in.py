"""Tensors of the CPU that stand for those of a GPU: by what a script does, never by what it says."""

import textwrap
from pathlib import Path

import pytest

from collectives.virtual import Roofline, VirtualRun, run
from sim import load_network

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
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING.format(asked=asked)))
    network = load_network("dgx-h100").topology(2)
    return run(script, network=network, compute=Roofline("h100"), fake=fake)


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
