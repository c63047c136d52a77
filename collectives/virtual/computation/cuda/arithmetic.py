"""Time of arithmetic on a GPU: which kernels compute, and in what shapes.

Matrix products and convolutions go by tiles where the device says how many multiprocessors it has, else at
the rate of its type.  Convolutions with one input channel a group compute without tensor cores.  Fused
attention goes at the rate of the family of kernels that the device runs; where it has none at half the rate
of products.  Arithmetic of other operations, such as the layers of a recurrent network, goes at the rate of
products whatever its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from collectives.virtual.computation.cuda.attention import attention_shape
from collectives.virtual.computation.cuda.convolutions import backward_products, forward_product
from collectives.virtual.computation.cuda.products import product_ps
from sim.hardware import AttentionRates, Device
from sim.units import SECOND

_HEADS_LAST = ("_flash_attention_", "_efficient_attention_")
_TENSOR_CORES = {"tfloat32", "bfloat16", "float16", "float8"}
_PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_scaled_mm": 0, "_addmm_activation": 1}
"""Where the operands of a product stand among the arguments."""
_WITHOUT_FUSED_KERNELS = AttentionRates(0.5, 0.5)
"""Parts of the rate of products, an assumption."""


class Arithmetic:
    """How long a device computes.

    Args:
        device: it.
    """

    def __init__(self, device: Device) -> None:
        self.device = device

    def duration_ps(self, name: str, named: Mapping[str, Any], result: Any, dtype: str, flops: int) -> int:
        """Return how long the arithmetic of an operation takes, in picoseconds.

        Args:
            name: of torch's operation, without its overload.
            named: its arguments by name.
            result: of the call.
            dtype: at whose rate it computes.
            flops: what torch counts; 0 of operations that memory bounds.

        Raises:
            KeyError: the device has no rate for *dtype*.
        """
        if "attention" in name:
            return self._attention_ps(name, named, dtype)
        if not flops:
            return 0
        if name in _PRODUCTS:
            operands = [value for value in named.values() if hasattr(value, "shape")]
            left, right = operands[_PRODUCTS[name] : _PRODUCTS[name] + 2]
            shape = left.shape[-2], right.shape[-1], left.shape[-1]
            return self._product_ps(shape, left.shape[0] if left.dim() == 3 else 1, dtype)
        if "convolution" in name:
            return self._convolution_ps(name, named, result, dtype, flops)
        return -(-flops * SECOND // self._rate(dtype))

    def _rate(self, dtype: str) -> int:
        """Return what full tiles sustain."""
        sustained = self.device.sustained.get(dtype)
        return self.device.rates[dtype] if sustained is None else sustained

    def _product_ps(self, shape: tuple[int, int, int], batch: int, dtype: str, part: float = 1.0) -> int:
        rate = self._rate(dtype)
        if part != 1:
            rate = int(rate * Fraction(repr(part)))
        multiprocessors = self.device.multiprocessors
        if multiprocessors is None:
            return -(-2 * shape[0] * shape[1] * shape[2] * batch * SECOND // rate)
        return product_ps(
            shape, batch, rate, multiprocessors, self.device.memory_bandwidth, dtype in _TENSOR_CORES
        )

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
        return sum(self._product_ps(shape, batch, dtype, part) for shape, batch in products)

    def _attention_ps(self, name: str, named: Mapping[str, Any], dtype: str) -> int:
        shape = attention_shape(named, heads_last=name.startswith(_HEADS_LAST))
        backward = "backward" in name
        operations = shape.backward_operations if backward else shape.operations

        rates = self.device.attention.get(self.device.attention_kernels)
        peak = self._rate(dtype) if rates is None else self.device.peaks[dtype]
        rates = rates or _WITHOUT_FUSED_KERNELS
        part = Fraction(repr(rates.backward if backward else rates.forward))
        return -(-operations * SECOND // int(peak * part))
