"""Time of kernels that compute on a GPU: products, convolutions, fused attention, grouped products.

Matrix products and convolutions go by tiles where the device says how many multiprocessors it has, else at
the rate of its type.  Convolutions with one input channel a group compute without tensor cores.  Fused
attention goes at the rate of the family of kernels that the device runs; where it has none at half the rate
of products.  Grouped products have equal groups.  Arithmetic of other operations, such as the layers of a
recurrent network, goes at the rate of products whatever its shape.

Convolutions are the matrix products that cuDNN's kernels compute (implicit GEMM): each picture's point is a
row, each output channel a column, and what a filter covers the depth; gradients of inputs and of weights are
products of the same three sizes in other roles.  Groups are a batch of products.  Pictures that are not
stored channels last are taken as if they were: the copies that cuDNN makes of them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from collectives.virtual.computation.cuda import bytes_moved
from collectives.virtual.computation.cuda.attention import AttentionShape, attention_ps, attention_shape
from collectives.virtual.computation.cuda.experts import grouped_product_ps
from collectives.virtual.computation.cuda.products import product_ps, slower, tiles_seconds
from sim.hardware import AttentionRates, Clocks, Device
from sim.units import SECOND

_HEADS_LAST = ("_flash_attention_", "_efficient_attention_")
_PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_scaled_mm": 0, "_addmm_activation": 1}
"""Where the operands of a product stand among the arguments."""
_PACKED = "float4"
"""The type whose tensors hold two numbers in an element."""


class Arithmetic:
    """How long kernels that compute take on a device.

    Args:
        device: it.
        clocks: of a training step, by default; of a short run or a long one of the same kernel.
    """

    def __init__(self, device: Device, clocks: Clocks = "training") -> None:
        self.device = device
        self.clocks: Clocks = clocks

    def duration_ps(
        self,
        name: str,
        named: Mapping[str, Any],
        result: Any,
        dtype: str,
        flops: int,
        nbytes: int,
        padded: bool = False,
    ) -> int:
        """Return how long an operation takes, its launches included, in picoseconds.

        Args:
            name: of torch's operation, without its overload.
            named: its arguments by name.
            result: of the call.
            dtype: at whose rate it computes.
            flops: what torch counts; 0 of operations that memory bounds.
            nbytes: that it moves.
            padded: rows of products are padded to what tensor cores load, as inductor does.

        Raises:
            KeyError: the device has no rate for *dtype*.
        """
        launches_ps = bytes_moved.kernels(name) * self.device.launch_ps
        moving_ps = -(-nbytes * SECOND // self.device.memory_bandwidth)
        if "attention" in name:
            return self._attention_ps(name, named, dtype, nbytes, launches_ps)
        if not flops:
            return moving_ps + launches_ps
        if name in _PRODUCTS:
            return self._product_ps(name, named, result, dtype, nbytes, padded)
        if name == "_grouped_mm":
            computing_ps = self._grouped_ps(named, result, dtype, flops, nbytes)
        elif "convolution" in name:
            computing_ps = self._convolution_ps(name, named, result, dtype, flops)
        else:
            computing_ps = -(-flops * SECOND // self._rate(dtype))
        return max(computing_ps, moving_ps) + launches_ps

    def _rate(self, dtype: str) -> int:
        """Return what the largest tiles reach."""
        return int(self.device.product_constants(dtype).rate(self.clocks))

    def _product_ps(
        self, name: str, named: Mapping[str, Any], result: Any, dtype: str, nbytes: int, padded: bool
    ) -> int:
        operands = [value for value in named.values() if hasattr(value, "shape")]
        left, right = operands[_PRODUCTS[name] : _PRODUCTS[name] + 2]
        m, n, k = left.shape[-2], right.shape[-1], left.shape[-1]
        if dtype == _PACKED:
            k *= 2
        batch = left.shape[0] if left.dim() == 3 else 1
        constants = self.device.product_constants(dtype)
        if self.device.multiprocessors is None:
            computing_ps = -(-2 * m * n * k * batch * SECOND // self._rate(dtype))
            moving_ps = -(-nbytes * SECOND // self.device.memory_bandwidth)
            return int(max(computing_ps, moving_ps)) + self.device.launch_ps
        whole_ps = product_ps((m, n, k), batch, nbytes, constants, self.device.multiprocessors, self.clocks)
        times = 1 if padded else slower((left, right, result), dtype)
        return whole_ps + (times - 1) * (whole_ps - constants.launch_ps)

    def _grouped_ps(self, named: Mapping[str, Any], result: Any, dtype: str, flops: int, nbytes: int) -> int:
        """Return the time of equal groups; where both operands are matrices, depth is what is divided."""
        left, right, offsets = named["self"], named["mat2"], named["offs"]
        if left.dim() == 2 and right.dim() == 3 and offsets is not None:
            groups, depth, columns = right.shape
            grouped_ps = grouped_product_ps(left.shape[0], groups, columns, depth, nbytes, self.device, dtype)
            if grouped_ps is not None:
                return grouped_ps
        if self.device.multiprocessors is None or offsets is None:
            return -(-flops * SECOND // self._rate(dtype))
        groups = offsets.shape[0]
        m, n = result.shape[-2:]
        k = max(1, flops // max(1, 2 * m * n * (groups if result.dim() == 3 else 1)))
        batch = groups if result.dim() == 3 else 1
        return self._tiles_ps((m, n, k), batch, dtype)

    def _tiles_ps(self, shape: tuple[int, int, int], batch: int, dtype: str, part: float = 1.0) -> int:
        """Return the arithmetic of a product alone, at *part* of the rate."""
        m, n, k = shape
        if not m * n * k * batch:
            return 0
        if self.device.multiprocessors is None:
            rate = int(self._rate(dtype) * Fraction(repr(part)))
            return -(-2 * m * n * k * batch * SECOND // rate)
        constants = self.device.product_constants(dtype)
        seconds = tiles_seconds(shape, batch, constants, self.device.multiprocessors, self.clocks)
        return round(seconds / part * SECOND)

    def _convolution_ps(
        self, name: str, named: Mapping[str, Any], result: Any, dtype: str, flops: int
    ) -> int:
        weight = named.get("weight")
        if weight is None or "transposed" not in named:
            return -(-flops * SECOND // self._rate(dtype))
        if named["groups"] > 1 and weight.shape[1] == 1:
            rate = self.device.rates.get("float32") or self._rate(dtype)
            return -(-flops * SECOND // rate)
        part = self.device.convolutions.get(dtype, 1.0)
        products = backward_products(named) if "backward" in name else [forward_product(named, result)]
        return sum(self._tiles_ps(shape, batch, dtype, part) for shape, batch in products)

    def _attention_ps(
        self,
        name: str,
        named: Mapping[str, Any],
        dtype: str,
        nbytes: int,
        launches_ps: int,
    ) -> int:
        shape = attention_shape(named, heads_last=name.startswith(_HEADS_LAST))
        rates = self.device.attention.get(self.device.attention_kernels)
        return self._fused_ps(shape, rates, dtype, "backward" in name, nbytes, launches_ps)

    def block_masked_ps(self, shape: AttentionShape, dtype: str, backward: bool, nbytes: int) -> int:
        """Return the time of attention with a mask of blocks, in picoseconds."""
        attention = self.device.attention
        rates = attention.get("flex", attention.get("fa2"))
        return self._fused_ps(shape, rates, dtype, backward, nbytes, self.device.launch_ps)

    def _fused_ps(
        self,
        shape: AttentionShape,
        rates: AttentionRates | None,
        dtype: str,
        backward: bool,
        nbytes: int,
        launches_ps: int,
    ) -> int:
        if rates is None:
            # products of whole tiles at half their rate: an assumption
            rates, peak = AttentionRates(0.5, 0.5), self._rate(dtype)
        else:
            peak = self.device.peaks[dtype]
        return attention_ps(shape, rates, peak, backward, nbytes, self.device, launches_ps)


Product = tuple[tuple[int, int, int], int]
"""m, n and k of a product, and how many of them a kernel computes."""


def forward_product(named: Mapping[str, Any], result: Any) -> Product:
    """Return the product of a convolution whose arguments are *named* and that gives *result*."""
    points, inputs, outputs, window, groups = _sizes(named, result)
    if named["transposed"]:
        return (points, inputs * window, outputs), groups
    return (points, outputs, inputs * window), groups


def backward_products(named: Mapping[str, Any]) -> Sequence[Product]:
    """Return the products of a backward pass: of the gradients that are asked for, inputs and weights."""
    points, inputs, outputs, window, groups = _sizes(named, named["grad_output"])
    wants_input, wants_weight, _ = named["output_mask"]
    of_pictures = prod(named["input"].shape[2:]) * named["input"].shape[0]

    products: list[Product] = []
    if wants_input:
        strided = not named["transposed"] and of_pictures > points
        depth = outputs * window * points // of_pictures if strided else outputs * window
        products.append(((of_pictures if strided else points, inputs, max(1, depth)), groups))
    if wants_weight:
        products.append(((outputs, inputs * window, points), groups))
    return products


def _sizes(named: Mapping[str, Any], pictures: Any) -> tuple[int, int, int, int, int]:
    """Return points of the pictures, inputs and outputs of a group, elements of a filter, and groups."""
    weight, groups = named["weight"], named["groups"]
    window = prod(weight.shape[2:])
    if named["transposed"]:
        # a transposed convolution is the gradient of one whose results are its inputs
        given = named["input"]
        points = given.shape[0] * prod(given.shape[2:])
        return points, weight.shape[1], weight.shape[0] // groups, window, groups
    points = pictures.shape[0] * prod(pictures.shape[2:])
    return points, weight.shape[1], weight.shape[0] // groups, window, groups
