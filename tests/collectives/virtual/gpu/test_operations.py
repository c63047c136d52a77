"""Operations on virtual CUDA tensors: the same time with data and without, and values of the CPU."""

from __future__ import annotations

import copy
import dataclasses
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from collectives.errors import NotSupportedError
from collectives.virtual import VirtualRun, run
from collectives.virtual.computation import Roofline
from sim.errors import RankError
from sim.files.device_file import load_device

H100 = dataclasses.replace(load_device("h100"), kind="gpu")
Script = Callable[[int], Any]


def on_gpu(fn: Script, fake: bool) -> VirtualRun:
    return run(fn, 1, "dgx-h100", compute=Roofline(H100), fake=fake)


def accuracy(rank: int) -> float:
    scores, labels = torch.randn(64, 10, device="cuda"), torch.randint(0, 10, (64,)).to("cuda")
    nn.functional.cross_entropy(scores, labels)
    return (scores.argmax(1) == labels).sum().item()


def picture_classifier(rank: int) -> float:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 3, 8, 8).cuda()).square().sum().backward()
    optimizer.step()
    return model(torch.ones(1, 3, 8, 8, device="cuda")).sum().item()


def recurrent(rank: int) -> float:
    model = nn.LSTM(8, 16, 2, batch_first=True).cuda()
    output, _ = model(torch.randn(4, 5, 8).cuda())
    output.sum().backward()
    return model.weight_hh_l0.grad.abs().sum().item()


def recurrent_without_bias(rank: int) -> float:
    model = nn.LSTM(8, 16, bias=False).cuda()
    output, _ = model(torch.randn(4, 5, 8).cuda())
    output.sum().backward()
    return model.weight_hh_l0.grad.abs().sum().item()


def log_sigmoid(rank: int) -> float:
    scores = torch.randn(64, 10).cuda().requires_grad_()
    nn.functional.logsigmoid(scores).sum().backward()
    return scores.grad.sum().item()


def scaled_half_precision(rank: int) -> float:
    model = nn.Linear(32, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=128.0)
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.ones(16, 32, device="cuda")).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 128
    return model.weight.sum().item()


def masked_attention(rank: int) -> float:
    query = torch.randn(2, 4, 16, 32, device="cuda", requires_grad=True)
    mask = torch.ones(16, 16, dtype=torch.bool, device="cuda").tril()
    nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=mask).sum().backward()
    assert query.grad is not None
    return query.grad.sum().item()


def pipeline_of_data(rank: int) -> float:
    data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64))
    total = torch.zeros((), device="cuda")
    for inputs, labels in torch.utils.data.DataLoader(data, 16, shuffle=True, pin_memory=True):
        total += inputs.to("cuda", non_blocking=True).sum() + labels.cuda().sum()
    return total.item()


def saved_and_loaded(rank: int) -> float:
    model, other = nn.Linear(8, 8).cuda(), nn.Linear(8, 8).cuda()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, map_location="cuda"))
    return other.weight.sum().item()


SCRIPTS = [
    accuracy, picture_classifier, recurrent, scaled_half_precision, masked_attention, pipeline_of_data,
    saved_and_loaded, recurrent_without_bias, log_sigmoid,
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_data_changes_no_time(script: Script) -> None:
    with_data, without = on_gpu(script, fake=False), on_gpu(script, fake=True)

    assert with_data.times_ps == without.times_ps
    assert math.isnan(without.results[0])
    assert with_data.results[0] == pytest.approx(run(script, 1, "dgx-h100").results[0], rel=1e-4)


def test_a_deep_copy_has_the_values_and_leaves_those_of_the_original_alone() -> None:
    def script(rank: int) -> Any:
        model = nn.Linear(4, 4).cuda()
        other = copy.deepcopy(model)
        equal = torch.equal(model.weight, other.weight)
        other.weight.data.add_(1)
        return equal, (other.weight - model.weight).mean().item(), type(other.weight) is type(model.weight)

    assert on_gpu(script, fake=False).results[0] == (True, pytest.approx(1), True)


def test_control_data_is_known_without_data() -> None:
    def script(rank: int) -> Any:
        sizes = torch.tensor([3, 1], device="cuda")
        part = sizes[1:]
        part += 1
        return sizes.tolist(), list(range(sizes.max())), torch.unique(sizes).shape[0]

    assert on_gpu(script, fake=True).results[0] == ([3, 2], [0, 1, 2], 2)


def test_what_is_written_through_a_view_is_unknown_in_its_base() -> None:
    def script(rank: int) -> float:
        base = torch.zeros(4, device="cuda")
        base[:2].copy_(torch.randn(1 << 10, 2, device="cuda").sum(0))
        return base.sum().item()

    assert math.isnan(on_gpu(script, fake=True).results[0])


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.unique(x),
        lambda x: int(x.sum()),
        lambda x: x.long().tolist(),
        lambda x: range(x.long().sum()),
    ],
)
def test_what_depends_on_data_is_refused_with_the_line(operation: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(RankError, match=r"depends on data, at test_operations\.py:") as raised:
        on_gpu(lambda rank: operation(torch.randn(100, device="cuda")), fake=True)

    assert isinstance(raised.value.__cause__, NotSupportedError)


def test_truth_values_are_false_and_their_lines_are_told() -> None:
    outcome = on_gpu(lambda rank: bool(torch.randn(100, device="cuda").isnan().any()), fake=True)

    assert outcome.results == [False]
    assert any(
        "truth values" in notice and "test_operations.py:" in notice for notice in outcome.report.notices
    )


def test_a_tensor_is_printed_as_of_the_device() -> None:
    text = on_gpu(lambda rank: repr(torch.ones(2, device="cuda")), fake=False).results[0]

    assert text == "tensor([1., 1.], device='cuda:0')"


def test_large_tensors_of_the_cpu_have_no_data() -> None:
    def script(rank: int) -> tuple[bool, bool]:
        weights = torch.empty(1 << 17, 1 << 17).uniform_()  # 64 GiB
        return weights.to("cuda").is_cuda, torch.empty(4).is_cpu

    assert on_gpu(script, fake=True).results[0] == (True, True)


def test_what_is_kept_of_an_operation_holds_for_its_arguments_alone() -> None:
    def script(rank: int) -> list[Any]:
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

    first, second = on_gpu(script, fake=True).results[0]
    assert first == second == (torch.Size([6, 4]), (1, 6), 12, torch.Size([1, 4, 6]), True)
