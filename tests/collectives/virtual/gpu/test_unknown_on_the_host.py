"""Tensors without data as the host sees them: nothing of what it held before, and errors name reads."""

import math
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from collectives.virtual import Roofline, run
from sim.errors import RankError
from tests.collectives.virtual import clusters
from tests.collectives.virtual.clusters import on_gpus
from tests.commands import called
from tests.given import switch

WHOLE = torch.arange(4)
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "copy_": lambda own, unknown: own.copy_(unknown),
    "own[...]": lambda own, unknown: own.__setitem__(..., unknown),
    "own[places]": lambda own, unknown: own.__setitem__(WHOLE, unknown),
    "own[mask]": lambda own, unknown: own.__setitem__(unknown > 0, 5),
    "fill_": lambda own, unknown: own.fill_(unknown[0]),
    "add_": lambda own, unknown: own.add_(unknown),
    "mul_": lambda own, unknown: own.mul_(unknown[0]),
    "index_add_": lambda own, unknown: own.index_add_(0, WHOLE, unknown),
    "scatter_": lambda own, unknown: own.scatter_(0, WHOLE, unknown),
    "masked_fill_": lambda own, unknown: own.masked_fill_(unknown > 0, 7),
    "foreach": lambda own, unknown: torch._foreach_add_([own], [unknown]),
    "cat": lambda own, unknown: torch.cat([unknown[:2], unknown[2:]], out=own),
    "stack": lambda own, unknown: torch.stack([*unknown], out=own),
    "where": lambda own, unknown: torch.where(WHOLE > 1, unknown, unknown, out=own),
    "add of a known one": lambda own, unknown: torch.add(torch.ones_like(own), unknown, out=own),
    "sum into an empty one": lambda own, unknown: torch.sum(unknown.view(2, 2), 0, out=own.resize_(0)),
    "two results": lambda own, unknown: torch.max(
        unknown.view(2, 2), 1, out=(own.resize_(0), WHOLE[:0].clone())
    ),
}


def without_data(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    """Return four elements that are not known, of an ordinary type."""
    return torch.zeros(1 << 21, dtype=dtype)[:4].to(device)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_what_is_written_into_an_ordinary_tensor_leaves_nothing_of_what_it_held(write, dtype):
    def script(rank):
        own = torch.arange(1, 5).to(dtype)
        WRITES[write](own, without_data(dtype))
        return own.tolist()

    outcome = on_gpus(script, 1, fake=True)

    (left,) = outcome.results
    assert len(left) == (2 if "resize_" in WRITES[write].__code__.co_names else 4)
    assert all(number == 0 or math.isnan(number) for number in left)
    assert any("without data" in notice and "CPU" in notice for notice in outcome.report.notices)


def test_only_the_part_that_is_written_to_is_lost():
    def script(rank):
        own = torch.arange(1.0, 5.0)
        own[:2] = without_data()[:2]
        own[3] = without_data()[0]
        return own.isnan().tolist()

    assert on_gpus(script, 1, fake=True).results == [[True, True, False, True]]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("call", ["broadcast", "send"])
def test_an_ordinary_tensor_that_receives_what_is_not_known_holds_it_no_more(call, device):
    def script(rank):
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
        own = torch.arange(1.0, 5.0) if rank else without_data(device=device)
        own = own.to(device)
        if call == "broadcast":
            dist.broadcast(own, 0)
        else:
            (dist.recv if rank else dist.send)(own, 1 - rank)
        return own.isnan().any().item() if device == "cpu" else math.isnan(own[0].item())

    assert on_gpus(script, 2, fake=True).results[1] is True


def test_a_gradient_scaler_of_the_cpu_finds_no_infinite_gradients_without_data():
    def script(rank):
        scaler, weight = torch.amp.GradScaler("cpu", init_scale=8.0), torch.nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight])
        scaler.scale((weight * without_data()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    assert on_gpus(script, 1, fake=True).results == [8.0]


READS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda unknown: torch.tensor([*unknown]),
    "nested": lambda unknown: torch.tensor([[*unknown], [*unknown]], dtype=torch.float64),
    "as_tensor": lambda unknown: torch.as_tensor((*unknown, 1.0)),
    "asarray": lambda unknown: torch.asarray([*unknown]),
    "new_tensor": lambda unknown: torch.zeros(1).new_tensor([*unknown]),
    "Tensor": lambda unknown: torch.Tensor([*unknown]),
    "FloatTensor": lambda unknown: torch.FloatTensor(([1.0, unknown[0]],)),
    "of one element each": lambda unknown: torch.Tensor([unknown[:1], unknown[1:2]]),
    "new": lambda unknown: torch.zeros(1).new([*unknown]),
    "complex": lambda unknown: torch.tensor([*unknown], dtype=torch.complex64),
    "float": lambda unknown: torch.tensor(float(unknown[0])),
    "format": lambda unknown: torch.tensor(float(f"{unknown[0]:.2f}")),
}
STEERS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda unknown: torch.tensor([*unknown]),
    "LongTensor": lambda unknown: torch.LongTensor([*unknown]),
    "bytes": lambda unknown: bytes([*unknown]),
    "pack": lambda unknown: struct.pack("q", unknown[0]),
    "asarray": lambda unknown: np.asarray(unknown.cpu()),
    "array": lambda unknown: np.array([*unknown.cpu()]),
    "format": lambda unknown: f"{unknown[0]:d}",
    "percent": lambda unknown: str.__mod__("%d", unknown[0]),
    "dlpack": lambda unknown: torch.from_dlpack(unknown.cpu()),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_numbers_that_are_made_of_unknown_ones_are_nan(read, device):
    def script(rank):
        return READS[read](without_data(device=device)).isnan().any().item()

    assert on_gpus(script, 1, fake=True).results == [True]


@pytest.mark.parametrize("make", [torch.tensor, torch.Tensor, torch.BoolTensor, torch.zeros(1).new])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_truth_values_that_are_made_of_unknown_ones_are_false(make, device):
    outcome = on_gpus(lambda rank: make([*without_data(torch.bool, device)]).any().item(), 1, fake=True)

    assert outcome.results == [False]
    assert any("truth values read from the device are False" in notice for notice in outcome.report.notices)


@pytest.mark.parametrize("steer", STEERS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_integers_are_refused_with_the_tensor_and_the_line(steer, device):
    with pytest.raises(RankError) as raised:
        on_gpus(lambda rank: STEERS[steer](without_data(torch.int64, device)), 1, fake=True)

    message = str(raised.value)
    assert "a tensor (int64, shape [" in message
    assert "depends on data, at test_unknown_on_the_host.py:" in message
    assert "run with data: without --fake" in message


def test_memory_of_a_virtual_device_is_no_other_librarys():
    with pytest.raises(RankError, match=r"DLPack of a tensor \(float32, shape \[3\], on cuda:0\).*\.cpu\(\)"):
        on_gpus(lambda rank: torch.from_dlpack(torch.ones(3, device="cuda")), 1)


@pytest.mark.parametrize("options", [{"fake": True}, {"fake": False}, None], ids=["fake", "data", "no model"])
def test_a_tensor_given_as_out_has_the_size_of_the_result(options):
    def script(rank):
        shapes = []
        for _ in range(2):  # the second time from what was kept
            total, largest = (torch.empty(0, device="cuda") for _ in range(2))
            places = torch.empty(0, dtype=torch.int64, device="cuda")
            total.add(1), largest.add(1)
            numbers = torch.ones(4, 6, device="cuda")
            torch.sum(numbers, 0, out=total)
            torch.max(numbers, 1, out=(largest, places))
            shapes += [(total + 1).shape, (largest + 1).shape, (places + 1).shape]
        return [*map(tuple, shapes)]

    if options is None:
        (shapes,) = run(script, 1, network=switch(1)).results
    else:
        (shapes,) = on_gpus(script, 1, **options).results
    assert shapes == [(6,), (4,), (4,)] * 2


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
def test_functions_that_make_tensors_are_known_to_the_compiler_of_torchscript():
    def script(rank):
        def made(size: int):
            return torch.tensor([size, 2]) + torch.as_tensor([1, 1])

        return torch.jit.script(made)(3).tolist()

    assert on_gpus(script, 1).results == [[4, 3]]
    assert torch.jit._builtins._find_builtin(torch.tensor) == "aten::tensor"


SAID_OF_READS = {
    "loss.item()": "numbers read from the device are NaN",
    "float(loss)": "numbers read from the device are NaN",
    "bool(torch.isfinite(loss))": "truth values read from the device are False",
    "loss.cpu()": "numbers copied to the CPU, or written into tensors there, are NaN",
    "torch.zeros(1, dtype=torch.int64).copy_(count)": "integers written into tensors of the CPU are 0",
}
BEGINNING = """\
import os, sys
import torch
rank = int(os.environ["RANK"])
loss = torch.randn(1000, 1000, device="cuda").sum()
count = (torch.randn(1000, 1000, device="cuda") > 0).sum().reshape(1)
"""
lists_of_reads = st.lists(st.sampled_from(list(SAID_OF_READS)), max_size=4)


@given(st.tuples(lists_of_reads, lists_of_reads), st.sampled_from(["raise ValueError", "sys.exit(3)"]))
def test_an_error_names_the_last_read_of_the_rank_that_fails(
    tmp_path_factory: pytest.TempPathFactory, reads: tuple[list[str], list[str]], ending: str
) -> None:
    lines = BEGINNING.splitlines()
    for rank, of_rank in enumerate(reads):
        lines += ["", f"if rank == {rank}:", "    pass", *(f"    {read}" for read in of_rank)]
        last = len(lines)
    path = clusters.script(tmp_path_factory.mktemp("script"), "\n".join([*lines, f"if rank == 1: {ending}"]))

    with pytest.raises(RankError) as failure:
        run(path, 2, "dgx-h100", compute=Roofline("h100"), fake=True)

    notes = [note for note in failure.value.__notes__ if "without data" in note]
    if reads[1]:
        assert len(notes) == 1
        assert SAID_OF_READS[reads[1][-1]] in notes[0]
        assert notes[0].endswith(f", last at script.py:{last}")
    else:
        assert not notes


def test_a_guard_that_ends_the_script_without_a_traceback_is_explained(tmp_path: Path) -> None:
    guard = """\
        import math, sys
        import torch
        loss = torch.randn(1000, 1000, device="cuda").sum()
        if not math.isfinite(loss.item()):
            sys.exit(1)
    """
    path = clusters.script(tmp_path, textwrap.dedent(guard))

    result = called(f"run --fake --ranks 2 --network dgx-h100 --compute h100 {path}", code=1)

    *notes, error = result.stderr.splitlines()
    assert notes[-1] == "  note: without data numbers read from the device are NaN, last at script.py:4"
    assert error.endswith("rank 0: ended with exit code 1")
