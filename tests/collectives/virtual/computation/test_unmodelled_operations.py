"""Operations whose cost has no formula and whose bytes do not bound it: named, or refused."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # registers the operations of asynchronous tensor parallelism

from sim import RankError
from tests.collectives.virtual.issued import on_own_gpus

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


@pytest.mark.parametrize("name", _UNMODELLED)
def test_what_is_not_modelled_stands_in_the_report_with_its_count_and_is_an_error_of_a_strict_run(name):
    work, says = _UNMODELLED[name]

    notices = [notice for notice in on_own_gpus(work).report.notices if notice.startswith(_NO_FORMULA)]
    with pytest.raises(RankError, match=r"at test_unmodelled_operations.py:\d+.*no formula") as caught:
        on_own_gpus(work, strict=True)

    assert len(notices) == 1
    assert says in notices[0]
    assert says.rpartition(" ")[0] in str(caught.value)


def test_what_torch_counts_or_memory_bounds_is_no_error_of_a_strict_run():
    def work():
        weight = torch.randn(64, 64, device="cuda", requires_grad=True)
        (weight @ weight).softmax(-1).norm().backward()
        torch.optim.AdamW([weight]).step()

    assert not any(notice.startswith(_NO_FORMULA) for notice in on_own_gpus(work, strict=True).report.notices)


def _group():
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    return dist.group.WORLD


def _operands() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")


def _fused_gather():
    shard, weight = _operands()
    return _symm_mem.fused_all_gather_matmul(shard, [weight], 0, _group().group_name)[1][0].shape


def _gather_then_product():
    shard, weight = _operands()
    gathered = _functional.all_gather_into_tensor(shard, 2, _group().group_name)
    return (_functional.wait_tensor(gathered) @ weight).shape


def _fused_scatter():
    rows, weight = _operands()
    return _symm_mem.fused_matmul_reduce_scatter(rows, weight, "sum", 0, _group().group_name).shape


def _product_then_scatter():
    rows, weight = _operands()
    part = _functional.reduce_scatter_tensor(rows @ weight, "sum", 2, _group().group_name)
    return _functional.wait_tensor(part).shape


@pytest.mark.parametrize(
    ("fused", "apart"), [(_fused_gather, _gather_then_product), (_fused_scatter, _product_then_scatter)]
)
def test_a_product_with_its_collective_takes_what_both_take(fused, apart):
    together, one_by_one = on_own_gpus(fused, ranks=2, strict=True), on_own_gpus(apart, ranks=2)

    assert together.results == one_by_one.results
    assert together.seconds == pytest.approx(one_by_one.seconds, rel=0.05)
    assert any("one after the other: symm_mem::fused_" in notice for notice in together.report.notices)
