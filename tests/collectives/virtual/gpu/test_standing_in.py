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
device = torch.device("{device}")
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    batch = torch.randn(16, 32, device=device)
    loss = torch.nn.functional.cross_entropy(model(batch), torch.randint(4, (16,)).to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def trained(folder: Path, *, asked: str = "", device: str = "cpu", fake: bool = False) -> VirtualRun:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING.format(asked=asked, device=device)))
    network = load_network("dgx-h100").topology(2)
    return run(script, network=network, compute=Roofline("h100"), fake=fake)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> VirtualRun:
    """The training on the CPU that says nothing of a GPU."""
    return trained(tmp_path_factory.mktemp("plain"))


def computed(ran: VirtualRun) -> float:
    steady = ran.report.steady()
    return steady.compute_seconds


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


def test_the_report_says_for_what_tensors_of_the_cpu_stood(tmp_path, plain):
    on_cuda = trained(tmp_path, device="cuda")

    assert (plain.report.stands_in, on_cuda.report.stands_in) == (True, False)


@pytest.mark.parametrize(
    "use", ["torch.ones(1, device='cuda')", "torch.ones(1).cuda()", "torch.cuda.set_device(0)"]
)
def test_who_uses_a_device_has_tensors_of_the_cpu_on_the_host(tmp_path, plain, use):
    both = trained(tmp_path, asked=use)

    assert computed(both) == 0 < computed(plain)
    assert not both.report.stands_in
