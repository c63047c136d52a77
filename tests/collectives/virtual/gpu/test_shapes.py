"""Shapes without data: what one rank has found serves the devices of the others."""

from collections import Counter

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.collectives.virtual.clusters import on_gpus, rank_thread


def test_a_call_is_found_once_for_all_devices_and_its_results_are_on_that_of_the_rank(monkeypatch):
    dispatched = Counter()
    original = FakeTensorMode.dispatch

    def dispatch(mode, *args, **options):
        dispatched[rank_thread().rank] += 1
        return original(mode, *args, **options)

    monkeypatch.setattr(FakeTensorMode, "dispatch", dispatch)

    def work(rank):
        matrix = torch.empty(8, 6, device=torch.device("cuda", rank))
        part = torch.split(matrix, [3, 5])[1]
        made = [matrix @ matrix.T, matrix.view(-1)[4:], part, matrix.add_(1), part.sum(0), matrix.half()]
        assert all(tensor.device == torch.device("cuda", rank) for tensor in made)
        return [(tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype) for tensor in made]

    outcome = on_gpus(work, 3, fake=True, fold=False)

    assert outcome.results[1] == outcome.results[2] == outcome.results[0]
    assert dispatched[0] > 0
    assert not dispatched.keys() - {0}


def test_a_call_on_two_devices_of_a_rank_is_none_on_one():
    def work(rank):
        here, other = (torch.empty(4, device=torch.device("cuda", (rank + n) % 4)) for n in range(2))
        return [str((here + here).device), str((other + other).device), str(torch.empty_like(other).device)]

    outcome = on_gpus(work, 4, fake=True, fold=False)

    for rank, devices in enumerate(outcome.results):
        here, other = f"cuda:{rank}", f"cuda:{(rank + 1) % 4}"
        assert devices == [here, other, other]


def test_what_has_no_type_of_its_own_has_the_default_one_whatever_it_was_before():
    makers = [
        lambda own: torch.randn(2, 3, device=own),
        lambda own: torch.full((3,), 1.5, device=own),
        lambda own: torch.arange(4, device=own) / 2,
        lambda own: torch.linspace(0, 1, 3, device=own),
    ]
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float32]

    def work(rank):
        found = []
        for dtype in dtypes:
            torch.set_default_dtype(dtype)
            found += [{make("cpu").dtype, make("cuda").dtype, make("cuda").cpu().dtype} for make in makers]
        return found

    results = on_gpus(work, 2, fake=True, fold=False).results

    assert results[0] == results[1] == [{dtype} for dtype in dtypes for _ in makers]
