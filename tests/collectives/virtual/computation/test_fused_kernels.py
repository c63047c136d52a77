"""Kernels that torch does not know: compiled regions, a script's own, and operations without a formula."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # registers the operations of asynchronous tensor parallelism
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import testbed
from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from sim import RankError
from tests.collectives.virtual.clusters import script
from tests.collectives.virtual.issued import BYTES_ALONE, launched_by, on_own_gpus

_DEVICE = Roofline("h100").device
_ELEMENTS = 1 << 24
_BYTES = 2 * _ELEMENTS


def _moving(tensors: float) -> int:
    return int(-(-int(tensors * _BYTES) * 10**12 // _DEVICE.memory_bandwidth)) + _DEVICE.launch_ps


def _rotated(one: Tensor, other: Tensor) -> Tensor:
    return (one * other + one.roll(1, 0)).tanh()


def _operands(grad: bool = False) -> tuple[Tensor, Tensor]:
    shape, options = (4096, _ELEMENTS // 4096), {"device": "cuda", "dtype": torch.bfloat16}
    return torch.empty(shape, requires_grad=grad, **options), torch.empty(shape, **options)


def test_what_is_fused_is_one_kernel_of_its_inputs_and_outputs_and_nests():
    def work():
        one, other = _operands()

        def compute():
            with testbed.fused("rotary"), testbed.fused("part of it"):
                return _rotated(one, other)

        return launched_by(compute)

    assert on_own_gpus(work).results[0] == [("rotary", _moving(3))]


def test_fused_products_take_what_they_take_alone_one_after_the_other():
    def work():
        one = torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)

        @testbed.fused("mlp")
        def compute() -> Tensor:
            return torch.relu(one @ one) @ one

        return [launched_by(compute), launched_by(lambda: torch.relu(one @ one) @ one)]

    together, apart = on_own_gpus(work).results[0]
    products = [duration - _DEVICE.launch_ps for name, duration in apart if name == "mm"]
    assert len(products) == 2
    assert together == [("mlp", sum(products) + _DEVICE.launch_ps)]


@pytest.mark.parametrize("again", [False, True])
def test_the_backward_pass_of_a_fused_kernel_is_one_kernel(again):
    def work():
        one, other = _operands(grad=True)

        def compute():
            with testbed.fused("rotary"):
                out = checkpoint(_rotated, one, other, use_reentrant=False) if again else _rotated(one, other)
            out.backward(torch.empty_like(out))

        return [(name, duration) for name, duration in launched_by(compute) if name == "rotary"]

    forward, backward = on_own_gpus(work).results[0]
    # autograd keeps the result of tanh, and `other`; inputs, the gradient and that of `one` cross the memory
    assert forward == ("rotary", _moving(3))
    assert backward == ("rotary", _moving(4))


def test_without_a_virtual_gpu_fused_changes_nothing():
    one = torch.randn(8)

    def work():
        with testbed.fused("square"):
            return one * one

    assert torch.equal(work(), one * one)
    assert torch.equal(run(lambda rank: work(), 1).results[0], one * one)


def _cumulated(x: Tensor) -> Tensor:
    return x.cumsum(0)


_scan, _unstated = (
    torch.library.custom_op(f"tests_of_own_kernels::{name}", _cumulated, mutates_args=())
    for name in ("scan", "unstated")
)
for _operator in (_scan, _unstated):
    _operator.register_fake(torch.empty_like)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (lambda x, out: {"flops": 10**12, "bytes": 0},
         10**24 // _DEVICE.rates["bfloat16"] + _DEVICE.launch_ps),
        (lambda x: {"bytes": 5 * x.nbytes}, _moving(5)),
        (lambda x, **options: {"flops": 1}, _moving(2)),
        (lambda x, out: {"flops": 10, "seconds": 3e-3}, 3 * 10**9),
    ],
    ids=["arithmetic", "bytes", "bytes of its tensors", "seconds"],
)  # fmt: skip
def test_a_stated_cost_is_charged_and_no_error_of_a_strict_run(formula, expected):
    testbed.cost(_scan)(formula)

    found = on_own_gpus(lambda: launched_by(lambda: _scan(_operands()[0])), strict=True)

    assert dict(found.results[0])["scan"] == pytest.approx(expected, abs=1)


def test_what_is_no_operator_and_what_is_no_cost_is_refused():
    with pytest.raises(NotSupportedError, match="expected an operator of"):
        testbed.cost(len)
    for name in ("", _rotated):  # the latter: a decorator without a name
        with pytest.raises(NotSupportedError, match="expected the name of a kernel"):
            testbed.fused(name)
    for wrong in ({"flop": 1}, {"flops": float("nan")}, {"seconds": float("inf")}, {"bytes": 10**400}):
        testbed.cost(torch.ops.tests_of_own_kernels.scan)(lambda x, wrong=wrong: wrong)
        with pytest.raises(RankError, match="expected flops, bytes, seconds by name"):
            on_own_gpus(lambda: _scan(_operands()[0]))


SIZE = 1000
NBYTES = 4 * SIZE


def launched(work, fake=False):
    """Return names and times of the kernels that *work* launches."""
    return on_own_gpus(lambda: launched_by(work), BYTES_ALONE, fake=fake).results[0]


def chain(x, y):
    return torch.relu(x * 2 + y).sigmoid()


def vector():
    return torch.empty(SIZE, device="cuda")


def test_element_wise_operations_of_a_compiled_function_are_one_pass():
    eager = launched(lambda: chain(vector(), vector()))
    compiled = launched(lambda: torch.compile(chain)(vector(), vector()))

    assert [time for _, time in eager] == [tensors * NBYTES + 1000 for tensors in (2, 3, 2, 2)]
    assert compiled == [("fused mul add relu", 3 * NBYTES + 1000)]


def test_what_is_kept_of_a_fused_kernel_is_written():
    kept = []

    def keeping(x, y):
        kept.append(x * 2)
        return kept[-1] + y

    found = launched(lambda: torch.compile(keeping)(vector(), vector()))

    assert found == [("fused mul add", 4 * NBYTES + 1000)]


def test_another_kernel_ends_a_fused_one_and_is_launched_behind_it():
    kept = []

    def compiled():
        a = torch.empty(10, 10, device="cuda")
        kept.append(torch.compile(lambda x: (x * 2 + 1) @ a * 3)(a))

    assert [name for name, _ in launched(compiled)] == ["fused mul add", "mm", "fused mul"]


def test_the_backward_pass_of_a_compiled_module_is_fused_too_and_what_surrounds_it_is_not():
    class Activated(nn.Module):
        def forward(self, x):
            return functional.gelu(functional.silu(x))

    def compiled():
        (torch.compile(Activated())(vector().requires_grad_()) * 2).sum().backward()

    found = launched(compiled)

    names = [name for name, _ in found]
    assert names[:3] == ["fused silu gelu", "mul", "sum"]
    assert names[-1].startswith("fused gelu_backward")
    assert not {"silu", "gelu", "sigmoid", "gelu_backward"} & set(names)
    assert launched(compiled, fake=True) == found


def test_a_compiled_module_keeps_its_names_and_its_results():
    module, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4)

    def compiled():
        wrapped = torch.compile(module)
        return list(wrapped.state_dict()), wrapped(x)

    names, result = on_own_gpus(compiled, fake=False).results[0]

    assert names == [f"_orig_mod.{name}" for name in module.state_dict()]
    assert torch.equal(result, module(x))


def test_who_switches_the_compiler_off_gets_what_was_given(monkeypatch):
    def work():
        layer = nn.Linear(4, 4, device="cuda")
        assert torch.compile(layer, disable=True) is layer
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
        assert torch.compile(layer) is layer
        assert torch.compile(fullgraph=True)(chain) is chain

    on_own_gpus(work)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_compiled_whole_runs_on_every_rank_also_without_a_model(device, tmp_path):
    path = script(
        tmp_path,
        f"""
        import torch
        @torch.compile(fullgraph=True)
        def twice(x): return x * 2 + 1
        total = twice(torch.ones(4, device="{device}")).sum().item()
        model = torch.compile(torch.nn.Linear(2, 2).to("{device}"))
        shape = tuple(model(torch.ones(3, 2, device="{device}")).shape)
        """,
    )

    assert [(left["total"], left["shape"]) for left in run(path, 2).results] == [(12.0, (3, 2))] * 2


_NO_FORMULA = "operations whose cost has no formula"
_symm_mem, _functional = torch.ops.symm_mem, torch.ops._c10d_functional


def _factorization() -> None:
    for _ in range(3):
        torch.linalg.qr(torch.randn(64, 64, device="cuda"))


_UNMODELLED: dict[str, tuple[Callable[[], None], str]] = {
    "a factorization": (_factorization, "aten.linalg_qr.default 3×"),
    "an operation that is not torch's": (
        lambda: _unstated(torch.randn(64, device="cuda")), "tests_of_own_kernels.unstated.default 1×"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _UNMODELLED)
def test_what_is_not_modelled_stands_in_the_report_with_its_count_and_is_an_error_of_a_strict_run(name):
    work, says = _UNMODELLED[name]

    notices = [notice for notice in on_own_gpus(work).report.notices if notice.startswith(_NO_FORMULA)]
    with pytest.raises(RankError, match=r"at test_fused_kernels.py:\d+.*no formula") as caught:
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


def _factors() -> tuple[Tensor, Tensor]:
    return torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 2048, device="cuda")


def _fused_gather():
    shard, weight = _factors()
    return _symm_mem.fused_all_gather_matmul(shard, [weight], 0, _group().group_name)[1][0].shape


def _gather_then_product():
    shard, weight = _factors()
    gathered = _functional.all_gather_into_tensor(shard, 2, _group().group_name)
    return (_functional.wait_tensor(gathered) @ weight).shape


def _fused_scatter():
    rows, weight = _factors()
    return _symm_mem.fused_matmul_reduce_scatter(rows, weight, "sum", 0, _group().group_name).shape


def _product_then_scatter():
    rows, weight = _factors()
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
