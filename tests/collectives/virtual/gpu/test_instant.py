"""Tensors that a script puts on CUDA are there, also where no GPU is modelled, and take no time."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.parallel import DistributedDataParallel

import ddp
from collectives.virtual import compute, run
from collectives.virtual.computation import Roofline
from collectives.virtual.gpu.accelerator import NO_MEMORY
from tests.collectives.virtual.devices.test_devices import TRAINING, state_of_torch

SAID = "    said = [indexed.device.type, images.device.type]\n"


def test_a_script_for_cuda_and_nccl_finds_its_tensors_on_cuda_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed.fsdp  # what it leaves when it is imported is its own

    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAINING.replace("weight.to(0).is_cpu", "weight.to(0).is_cuda") + SAID))
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "model.pt"))
    before = state_of_torch()

    outcome = run(path, 2, "dgx-h100")

    assert state_of_torch() == before
    for left in outcome.results:
        assert left["moved"]
        assert left["half"] == torch.float16
        assert left["device"].type == left["kind"] == left["default"] == left["inside"] == "cuda"
        assert left["said"] == ["cuda", "cuda"]
        assert left["indexed"].device.type == "cpu"  # after the run there is no device
        assert 0 < left["milliseconds"] / 1e3 < outcome.seconds
        assert (left["used"], left["name"]) == ((0, 0), "virtual GPU")
        assert left["loaded"].keys() == left["model"].state_dict().keys()
    weights = [left["model"].module[0].weight.tolist() for left in outcome.results]
    assert weights[0] == weights[1]
    assert outcome.report.notices == (NO_MEMORY,)


def trained(device: str, wrap: Any) -> Any:
    """Return a function of the rank that trains on *device*, and returns its losses."""

    def work(rank: int) -> list[float]:
        dist.init_process_group("nccl")
        torch.manual_seed(rank)
        layers = (nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 8))
        model = wrap(nn.Sequential(*layers).to(device), device)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        losses = []
        for _ in range(3):
            loss = (model(torch.randn(4, 8).to(device)) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    return work


def by_copies(model: nn.Module, device: str) -> nn.Module:
    return DistributedDataParallel(model)


def by_shards(model: nn.Module, device: str) -> nn.Module:
    fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))
    return model


@pytest.mark.parametrize("wrap", [by_copies, by_shards])
def test_losses_and_times_on_cuda_are_those_on_the_cpu(wrap: Any) -> None:
    on_cuda, on_cpu = (run(trained(device, wrap), 4, "dgx-h100") for device in ("cuda", "cpu"))

    assert on_cuda.results == on_cpu.results
    assert on_cuda.times_ps == on_cpu.times_ps


def test_tensors_on_cuda_say_so() -> None:
    def work(rank: int) -> list[Any]:
        torch.cuda.set_device(1)
        tensor = torch.ones(2, 3).cuda()
        row = tensor[1]
        row += 1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            product = tensor @ tensor.T
            enabled = torch.is_autocast_enabled()
        return [
            str(tensor.device), tensor.is_cuda, tensor.get_device(), tensor.tolist(), product.dtype, enabled,
            torch.nonzero(tensor > 1).tolist(), tensor[tensor > 1].sum().item(), tensor.cpu().device.type,
        ]  # fmt: skip

    assert run(work, 2, "dgx-h100").results[0] == [
        "cuda:1", True, 1, [[1.0] * 3, [2.0] * 3], torch.bfloat16, True,
        [[1, 0], [1, 1], [1, 2]], 6.0, "cpu",
    ]  # fmt: skip


def test_a_view_shares_what_is_written() -> None:
    def work(rank: int) -> list[list[float]]:
        base = torch.zeros(6, device="cuda")
        base[2:].view(2, 2)[1].view(torch.int32).fill_(0x3F800000)
        base.chunk(3)[0].copy_(torch.tensor([5.0, 6.0]))
        return [base.tolist(), base[2:4].as_strided((2,), (1,), 4).tolist()]

    assert run(work, 1).results == [[[5.0, 6.0, 0.0, 0.0, 1.0, 1.0], [1.0, 1.0]]]


def test_devices_are_not_mixed() -> None:
    def work(rank: int) -> None:
        torch.ones(2, device="cuda") + torch.ones(2)

    with pytest.raises(Exception, match=r"cuda:0, cpu|two devices|same device"):
        run(work, 1)


def test_events_and_streams_tell_virtual_time() -> None:
    def work(rank: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        compute("2.5ms")
        with torch.cuda.stream(torch.cuda.Stream()):
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    assert run(work, 2).results == [2.5, 2.5]


def test_only_who_asks_for_cuda_gets_it(tmp_path: Path) -> None:
    def has_modes(text: str, *argv: str) -> int:
        path = tmp_path / "script.py"
        path.write_text(f"import torch\n{text}\nmodes = torch._C._len_torch_dispatch_stack()\n")
        return int(run(path, 1, argv=argv).results[0]["modes"])

    (tmp_path / "own_model.py").write_text("import torch\nDEVICE = torch.device('cuda')\n")

    assert has_modes("torch.distributed.init_process_group('nccl')") == 0
    assert has_modes("name = 'cuda'") == 1
    assert has_modes("", "--device=cuda") == 1
    assert has_modes("import own_model\nassert own_model.DEVICE.type == 'cu' + 'da'") == 1
    assert has_modes("assert getattr(torch, 'cu' + 'da').is_available()") == 1  # as a library would


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_compiled_whole_runs_on_every_rank(device: str, tmp_path: Path) -> None:
    path = tmp_path / "compiled.py"
    path.write_text(
        "import torch\n"
        "@torch.compile(fullgraph=True)\ndef twice(x): return x * 2 + 1\n"
        f"total = twice(torch.ones(4, device='{device}')).sum().item()\n"
        "model = torch.compile(torch.nn.Linear(2, 2))\n"
        "shape = tuple(model(torch.ones(3, 2)).shape) if 'cpu' == '" + device + "' else (3, 2)\n"
    )

    assert [(left["total"], left["shape"]) for left in run(path, 2).results] == [(12.0, (3, 2))] * 2


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
def test_flexible_attention_is_attention(device: str, compute_model: Roofline | None) -> None:
    def work(rank: int) -> bool:
        query = torch.randn(1, 2, 16, 16).to(device)
        plain = nn.functional.scaled_dot_product_attention(query, query, query)
        return torch.allclose(flex_attention(query, query, query), plain, atol=1e-5)

    assert run(work, 2, "dgx-h100", compute=compute_model).results == [True, True]


def test_batch_norm_changes_its_statistics_and_returns_tensors_of_the_device() -> None:
    def script(rank: int) -> tuple[str, float]:
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm2d(3).cuda()
        out = norm(torch.randn(4, 3, 5, 5).cuda())
        out.square().sum().backward()
        return out.device.type, norm.running_var.sum().item()

    def by_hand() -> float:
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm2d(3)
        norm(torch.randn(4, 3, 5, 5))
        return norm.running_var.sum().item()

    assert run(script, 1).results == [("cuda", pytest.approx(by_hand()))]


def test_our_data_parallel_reduces_what_is_on_the_devices() -> None:
    def script(rank: int) -> tuple[str, float]:
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(rank)
        model = ddp.DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[rank])
        model(torch.full((2, 4), float(rank), device="cuda")).sum().backward()
        return model.module.weight.device.type, model.module.weight.grad.sum().item()

    assert run(script, 4).results == [("cuda", 2 * 16 * 1.5)] * 4


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
def test_conjugate_views_are_conjugate(compute_model: Roofline | None) -> None:
    def rotated(device: str) -> list[list[float]]:
        torch.manual_seed(0)
        pairs = torch.randn(4, 3, 2).to(device).requires_grad_()
        angles = torch.polar(torch.ones(3), torch.arange(3.0)).to(device)
        turned = torch.view_as_complex(pairs) * angles
        (torch.view_as_real(turned).cumsum(0) * turned.detach().conj().imag[..., None]).sum().backward()
        return pairs.grad.flatten(1).tolist()

    outcome = run(lambda rank: rotated("cuda"), 1, "dgx-h100", compute=compute_model)

    assert outcome.results == [rotated("cpu")]


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
def test_a_tensor_is_made_of_numbers_that_are_on_the_device(compute_model: Roofline | None) -> None:
    def work(rank: int) -> list[Any]:
        total = torch.tensor([3.0, 4.0], device="cuda")
        made = torch.tensor([[total[0], 1.0], [2, total[1]]], device="cuda")
        return [made.tolist(), torch.tensor([total[1]]).tolist(), made.new_tensor([total[0]]).device.type]

    outcome = run(work, 1, "dgx-h100", compute=compute_model)

    assert outcome.results == [[[[3.0, 1.0], [2.0, 4.0]], [4.0], "cuda"]]


def test_where_only_cudnn_is_allowed_attention_is_a_fused_kernel() -> None:
    def work(rank: int) -> tuple[bool, str]:
        query = torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        return out.isnan().any().item(), out.grad_fn.name()

    assert run(work, 1).results == [(False, "ScaledDotProductFlashAttentionBackward0")]


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
def test_attention_trains_a_bias_that_it_adds(compute_model: Roofline | None) -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        shapes = [(2, 3, 8, 8)] * 3 + [(1, 3, 8, 8)]
        made = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
        attended = nn.functional.scaled_dot_product_attention(*made[:3], attn_mask=made[3])
        (attended * torch.arange(8, device=device)).sum().backward()
        return [tensor.grad.cpu() for tensor in made]

    outcome = run(lambda rank: gradients("cuda"), 1, "dgx-h100", compute=compute_model)

    for virtual, real in zip(outcome.results[0], gradients("cpu"), strict=True):
        torch.testing.assert_close(virtual, real)


def test_a_script_finds_a_build_with_cuda_and_torch_finds_its_own() -> None:
    def work(rank: int) -> list[Any]:
        torch.ones(1, device="cuda")
        return [torch.version.cuda, torch.cuda.nccl.version(), torch.version.hip]

    before = torch.version

    assert run(work, 1).results == [["12.8", (2, 27, 5), None]]
    assert torch.version is before
