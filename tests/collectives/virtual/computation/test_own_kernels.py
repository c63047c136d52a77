"""Kernels of a script's own: `testbed.fused` and `testbed.cost`."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import testbed
from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from sim import RankError
from tests.collectives.virtual.issued import launched_by, on_own_gpus

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


@torch.library.custom_op("tests_of_own_kernels::scan", mutates_args=())
def _scan(x: Tensor) -> Tensor:
    return x.cumsum(0)


@_scan.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (
            lambda x, out: {"flops": 10**12, "bytes": 0},
            10**24 // _DEVICE.rates["bfloat16"] + _DEVICE.launch_ps,
        ),
        (lambda x: {"bytes": 5 * x.nbytes}, _moving(5)),
        (lambda x, **options: {"flops": 1}, _moving(2)),
        (lambda x, out: {"flops": 10, "seconds": 3e-3}, 3 * 10**9),
    ],
    ids=["arithmetic", "bytes", "bytes of its tensors", "seconds"],
)
def test_a_stated_cost_is_charged_and_no_error_of_a_stricton_own_gpus(formula, expected):
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
