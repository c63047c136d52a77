"""Operations on virtual CUDA tensors: what is known of them with data and without."""

import copy
import io
import math

import pytest
import torch
from torch import nn

from collectives.errors import NotSupportedError
from sim.errors import RankError
from tests.collectives.virtual.clusters import on_gpus


def test_a_deep_copy_has_the_values_and_leaves_those_of_the_original_alone():
    def script(rank):
        model = nn.Linear(4, 4).cuda()
        other = copy.deepcopy(model)
        equal = torch.equal(model.weight, other.weight)
        other.weight.data.add_(1)
        return equal, (other.weight - model.weight).mean().item(), type(other.weight) is type(model.weight)

    assert on_gpus(script, 1).results[0] == (True, pytest.approx(1), True)


def test_control_data_is_known_without_data():
    def script(rank):
        sizes = torch.tensor([3, 1], device="cuda")
        part = sizes[1:]
        part += 1
        return sizes.tolist(), list(range(sizes.max())), torch.unique(sizes).shape[0]

    assert on_gpus(script, 1, fake=True).results[0] == ([3, 2], [0, 1, 2], 2)


def test_what_is_written_through_a_view_is_unknown_in_its_base():
    def script(rank):
        base = torch.zeros(4, device="cuda")
        base[:2].copy_(torch.randn(1 << 10, 2, device="cuda").sum(0))
        return base.sum().item()

    assert math.isnan(on_gpus(script, 1, fake=True).results[0])


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: torch.unique(x), lambda x: int(x.sum()),
        lambda x: x.long().tolist(), lambda x: range(x.long().sum()),
    ],
)  # fmt: skip
def test_what_depends_on_data_is_refused_with_the_line(operation):
    with pytest.raises(RankError, match=r"depends on data, at test_operations\.py:") as raised:
        on_gpus(lambda rank: operation(torch.randn(100, device="cuda")), 1, fake=True)

    assert isinstance(raised.value.__cause__, NotSupportedError)


def test_large_tensors_of_the_cpu_have_no_data():
    def script(rank):
        weights = torch.empty(1 << 17, 1 << 17).uniform_()  # 64 GiB
        return weights.to("cuda").is_cuda, torch.empty(4).is_cpu

    assert on_gpus(script, 1, fake=True).results[0] == (True, True)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_list_of_a_large_tensor_without_data_has_its_shape_and_no_numbers(device, dtype, is_whole):
    def script(rank):
        large = torch.zeros(1 << 19, 3, dtype=dtype, device=device)
        part = large if is_whole else large[:2]
        listed = part.tolist()
        return listed[-1], [*map(len, (listed, *listed[:2]))] == [len(part), 3, 3]

    outcome = on_gpus(script, 1, fake=True)

    ((last, has_shape),) = outcome.results
    assert has_shape
    assert all(number != number for number in last)
    assert any("without data" in notice and "NaN" in notice for notice in outcome.report.notices)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_without_a_number_that_says_so_is_refused(device, dtype):
    with pytest.raises(RankError, match=r"a list of a tensor \((int64|bool), .* depends on data"):
        on_gpus(lambda rank: torch.zeros(1 << 21, dtype=dtype, device=device).tolist(), 1, fake=True)


def test_data_that_a_tensor_of_the_cpu_gets_without_any_can_be_read():
    def script(rank):
        tensor, file = torch.zeros(1 << 21), io.BytesIO()
        tensor.data = torch.arange(3.0)
        torch.save(tensor, file)
        file.seek(0)
        return tensor.tolist(), repr(tensor), tensor.numpy().tolist(), torch.load(file).tolist()

    numbers = [0.0, 1.0, 2.0]
    assert on_gpus(script, 1, fake=True).results[0] == (numbers, "tensor([0., 1., 2.])", numbers, numbers)


def test_what_is_kept_of_an_operation_holds_for_its_arguments_alone():
    def script(rank):
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

    first, second = on_gpus(script, 1, fake=True).results[0]
    assert first == second == (torch.Size([6, 4]), (1, 6), 12, torch.Size([1, 4, 6]), True)


def test_a_model_without_memory_takes_no_time_to_make():
    def built(rank):
        with torch.device("meta"):
            nn.Linear(1 << 14, 1 << 14)

    assert on_gpus(built, 1, fake=True).times_ps == (0,)
