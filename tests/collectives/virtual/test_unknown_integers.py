"""Integers of a run without data: unknown on the device, and so in copies on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from sim import RankError
from tests.given import switch

_COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "cpu": lambda counts: counts.cpu(),
    "to": lambda counts: counts.to("cpu", torch.int32, non_blocking=True),
    "and back": lambda counts: counts.cpu().add(1).cuda(),
}
_READS: dict[str, Callable[[Tensor], Any]] = {
    "list": lambda counts: counts.tolist(), "array": lambda counts: counts.cpu().numpy(),
    "integer": lambda counts: int(counts[0]), "range": lambda counts: range(counts[1]),
    "split": lambda counts: torch.ones(8).split(counts.tolist()),
    "size": lambda counts: torch.zeros(counts[0]), "sizes": lambda counts: torch.empty((2, counts[0])),
    "on the device": lambda counts: torch.zeros(counts[0], device="cuda"),
    "element as size": lambda counts: torch.zeros(counts[0].item(), device="cuda"),
    "slice": lambda counts: torch.ones(8)[: counts[0]],
    "element in a slice": lambda counts: torch.ones(8)[: counts[0].item()],
    "index": lambda counts: torch.ones(8, device="cuda")[counts[1]],
    "arange": lambda counts: torch.arange(counts[0]), "parts": lambda counts: torch.ones(8).split(counts[0]),
    "reshape": lambda counts: torch.ones(8).reshape(counts[0], -1),
    "narrow": lambda counts: torch.ones(8).narrow(0, 0, counts[0]),
    "element of range": lambda counts: range(counts[0].item()),
    "repeat": lambda counts: torch.ones(8).repeat(counts[0].item()),
    "seed": lambda counts: torch.manual_seed(counts[0].item()),
}  # fmt: skip


def _run(work: Callable[[], Any]):
    return run(lambda rank: work(), network=switch(1), compute=Roofline("h100"), fake=True).results[0]


@pytest.mark.parametrize("copy", _COPIES)
@pytest.mark.parametrize("read", _READS)
def test_what_steers_by_an_unknown_integer_is_refused_by_name(copy, read):
    def work():
        tokens = torch.randn(8, 4, device="cuda")
        counts = torch.stack([(tokens.sum(1) > 0).sum(), (tokens.sum(1) <= 0).sum()])
        return _READS[read](_COPIES[copy](counts))

    with pytest.raises(RankError, match=r"depends on data, at test_unknown_integers.py:\d+") as caught:
        _run(work)
    assert isinstance(caught.value.__cause__, NotSupportedError)


def test_another_error_after_such_a_read_stays_what_it_is():
    def work():
        torch.randn(64, device="cuda").argmax().item()
        return torch.zeros(2.5)

    with pytest.raises(RankError, match="TypeError") as caught:
        _run(work)
    assert "integers read from the device are NaN" in "".join(caught.value.__notes__)


def test_copies_know_what_is_known_and_no_more():
    def work():
        counts, numbers = torch.tensor([3, 5], device="cuda") + 1, torch.randn(64, device="cuda")
        known = counts.cpu().tolist(), counts.cpu().numpy().tolist(), int(counts.to("cpu")[0])
        return known, numbers.cpu().isnan().all().item()

    assert _run(work) == (([4, 6], [4, 6], 4), True)
