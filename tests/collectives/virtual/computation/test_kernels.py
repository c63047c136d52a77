"""Kinds and shapes of kernels: under what operations stand in device files, and what they are charged."""

import pytest
import torch
from torch.nn import functional

from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from collectives.virtual.computation.kernels import kernel_of
from collectives.virtual.computation.operations import Operation
from collectives.virtual.notices import Notices
from sim import Cluster, Device, Topology
from sim.hardware import KernelTable
from sim.units import SECOND

aten = torch.ops.aten
ALONE = Topology.switch(num_ranks=1, bandwidth="1GB/s", latency="1us")


def kernel(func, *args, **named):
    result = func(*args, **named)
    return kernel_of(func, args, named, result, Operation.of(func).nbytes(args, named, result))


def ones(*shape):
    return torch.ones(shape)


def convolution(x, weight, stride=1, groups=1, transposed=False):
    return aten.convolution.default, x, weight, None, [stride] * 2, [1, 1], [1, 1], transposed, [0, 0], groups


def attention(causal):
    q, k = ones(1, 2, 6, 8), ones(1, 2, 10, 8)
    return aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, k, 0.0, causal


@pytest.mark.parametrize(
    ("call", "kind", "shape"),
    [
        ((aten.mm.default, ones(2, 3), ones(3, 5)), "product", {"m": 2, "n": 5, "k": 3}),
        ((aten.addmm.default, ones(5), ones(2, 3), ones(3, 5)), "product", {"m": 2, "n": 5, "k": 3}),
        ((aten.bmm.default, ones(7, 2, 3), ones(7, 3, 5)), "batched_product", {"m": 2, "n": 5, "k": 3}),
        (convolution(ones(2, 3, 8, 8), ones(5, 3, 3, 3)),
         "convolution", {"samples": 2, "edge": 8, "depth": 27, "outputs": 5}),
        (convolution(ones(2, 3, 8, 8), ones(5, 3, 1, 1), stride=2),
         "strided_pointwise_convolution", {"samples": 2, "edge": 5, "depth": 3, "outputs": 5}),
        (convolution(ones(2, 4, 8, 8), ones(4, 1, 3, 3), groups=4),
         "depthwise_convolution", {"samples": 2, "edge": 8, "channels": 4}),
        (convolution(ones(2, 4, 8, 8), ones(4, 4, 3, 3), transposed=True),
         "transposed_convolution", {"samples": 2, "edge": 8}),
        ((aten.add.Tensor, ones(10), ones(10)), "add", {"bytes": 120}),
        ((aten.sum.dim_IntList, ones(4, 5), [0]), "column_sum", {"bytes": 100}),
        ((aten.sum.dim_IntList, ones(4, 5), [1]), "sum", {"bytes": 96}),
        ((aten.clone.default, ones(4, 5)), "clone", {"bytes": 160}),
        ((aten.copy_.default, ones(5, 4), ones(4, 5).t()), "transposed_copy", {"bytes": 160}),
        ((aten.copy_.default, ones(5, 4), ones(5, 8)[:, :4]), "strided_copy", {"bytes": 160}),
        ((aten.max_pool2d_with_indices.default, ones(2, 3, 8, 8), [2, 2]),
         "max_pool2d_with_indices", {"edge": 8, "bytes": 1536}),
        (attention(causal=False), "attention", {"keys": 10, "head": 8}),
        (attention(causal=True), "causal_attention", {"keys": 10, "head": 8}),
    ],
)  # fmt: skip
def test_an_operation_stands_under_its_kind_with_its_shape(call, kind, shape):
    found = kernel(*call)

    assert found.operations[0] == kind
    assert found.shape == shape


def test_what_works_element_by_element_may_stand_as_an_addition():
    assert list(kernel(aten.mul_.Tensor, ones(3), 2.0).operations) == ["mul_", "mul", "add_"]
    assert list(kernel(aten.mul.Tensor, ones(3), 2.0).operations) == ["mul", "mul_", "add"]
    assert "add" not in kernel(aten.cat.default, [ones(3), ones(3)]).operations


def device(*tables):
    return Device(
        "mine", {"float32": SECOND}, SECOND, kernels={(own.operation, own.dtype): own for own in tables}
    )


PRODUCT = KernelTable(
    "product", "float32", "arithmetic", {"m": (1, 4), "n": (1, 4), "k": (1, 4)}, (SECOND // 10,) * 8, 7
)
ADD = KernelTable("add", "float32", "bytes", {"bytes": (12, 1200)}, (SECOND // 2,) * 2, 5)


def charged(work, on):
    def timed(rank):
        before = Cluster.current().now_ps()
        work()
        return Cluster.current().now_ps() - before

    outcome = run(timed, network=ALONE, compute=Roofline(on))
    return outcome.results[0], Notices.of(outcome.cluster).texts


def test_a_measured_kind_takes_what_its_table_says_and_others_what_the_peaks_say():
    x = torch.full((4, 4), 0.5)

    assert charged(lambda: torch.mm(x, x), device(PRODUCT)) == (10 * 2 * 4**3 + 7, ())
    assert charged(lambda: torch.add(x, x), device(ADD)) == (2 * 3 * 64 + 5, ())
    assert charged(lambda: torch.mul(x, x), device(ADD)) == (2 * 3 * 64 + 5, ())
    assert charged(lambda: torch.mm(x, x), device()) == (3 * 64, ())


def test_what_has_no_table_or_lies_outside_of_the_measured_shapes_is_told():
    x = torch.full((4, 8), 0.5)

    taken, notices = charged(lambda: (torch.mm(x, x.t()), functional.softmax(x, -1)), device(PRODUCT))

    assert taken == 10 * 2 * 4 * 4 * 8 + 7 + 2 * 128
    assert notices == (
        "mine: kernels that lie outside of the measured shapes, and go at the rate of the nearest: product",
        "mine: kernels that were not measured, and take what its peaks say: _softmax in float32",
    )


def test_a_table_of_shapes_that_kernels_do_not_have_is_refused():
    odd = KernelTable("product", "float32", "arithmetic", {"m": (1,), "tiles": (1,)}, (1,))

    with pytest.raises(NotSupportedError, match="mine has kernels of product by m, tiles; expected m, n, k"):
        Roofline(device(odd))
