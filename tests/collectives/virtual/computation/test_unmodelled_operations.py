"""Operations whose cost has no formula and whose bytes do not bound it: named, or refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # registers the operations of asynchronous tensor parallelism

from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from sim import RankError
from tests.given import switch

_NO_FORMULA = "operations whose cost has no formula"
_symm_mem, _functional = torch.ops.symm_mem, torch.ops._c10d_functional


def _factorization() -> None:
    for _ in range(3):
        torch.linalg.qr(torch.randn(64, 64, device="cuda"))


@torch.library.custom_op("tests_of_unmodelled::scan", mutates_args=())
def _scan(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(0)


@_scan.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _own_kernel() -> None:
    _scan(torch.randn(64, device="cuda"))


_UNMODELLED: dict[str, tuple[Callable[[], None], str]] = {
    "a factorization": (_factorization, "aten.linalg_qr.default 3×"),
    "an operation that is not torch's": (_own_kernel, "tests_of_unmodelled.scan.default 1×"),
}


def _run(work: Callable[[], Any], ranks: int = 1, **options):
    options = {"fake": True, "fold": False, **options}
    return run(lambda rank: work(), network=switch(ranks), compute=Roofline("h100"), **options)


@pytest.mark.parametrize("name", _UNMODELLED)
def test_what_is_not_modelled_stands_in_the_report_with_its_count(name):
    work, says = _UNMODELLED[name]

    notices = [notice for notice in _run(work).report.notices if notice.startswith(_NO_FORMULA)]

    assert len(notices) == 1
    assert says in notices[0]


@pytest.mark.parametrize("name", _UNMODELLED)
def test_what_is_not_modelled_is_an_error_of_a_strict_run(name):
    work, says = _UNMODELLED[name]

    with pytest.raises(RankError, match=r"at test_unmodelled_operations.py:\d+.*no formula") as caught:
        _run(work, strict=True)
    assert says.rpartition(" ")[0] in str(caught.value)


def test_what_torch_counts_or_memory_bounds_is_no_error_of_a_strict_run():
    def work():
        weight = torch.randn(64, 64, device="cuda", requires_grad=True)
        (weight @ weight).softmax(-1).norm().backward()
        torch.optim.AdamW([weight]).step()

    assert not any(notice.startswith(_NO_FORMULA) for notice in _run(work, strict=True).report.notices)


def _group():
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    return dist.group.WORLD


def _fused_gather():
    shard, weight = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")
    return _symm_mem.fused_all_gather_matmul(shard, [weight], 0, _group().group_name)[1][0].shape


def _gather_then_product():
    shard, weight = torch.randn(512, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")
    gathered = _functional.all_gather_into_tensor(shard, 2, _group().group_name)
    return (_functional.wait_tensor(gathered) @ weight).shape


def _fused_scatter():
    rows, weight = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")
    return _symm_mem.fused_matmul_reduce_scatter(rows, weight, "sum", 0, _group().group_name).shape


def _product_then_scatter():
    rows, weight = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")
    part = _functional.reduce_scatter_tensor(rows @ weight, "sum", 2, _group().group_name)
    return _functional.wait_tensor(part).shape


@pytest.mark.parametrize(
    ("fused", "apart"), [(_fused_gather, _gather_then_product), (_fused_scatter, _product_then_scatter)]
)
def test_a_product_with_its_collective_takes_what_both_take(fused, apart):
    together, one_by_one = _run(fused, 2, strict=True), _run(apart, 2)

    assert together.results == one_by_one.results
    assert together.seconds == pytest.approx(one_by_one.seconds, rel=0.05)
    assert any("one after the other: symm_mem::fused_" in notice for notice in together.report.notices)


def test_a_strict_run_needs_a_device():
    with pytest.raises(NotSupportedError, match="strict: operations are charged by a device"):
        run(lambda rank: None, network=switch(1), strict=True)
