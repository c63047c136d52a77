"""Kernels of a transformer's layer on a device, as a virtual GPU is charged for them in training."""

from __future__ import annotations

from functools import lru_cache

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.computation.cuda.attention import AttentionShape, attention_ps
from collectives.virtual.computation.cuda.experts import ExpertLayer, layer_ps
from collectives.virtual.computation.launches import Launches
from sim.hardware import Device
from sim.units import SECOND

DTYPE = "bfloat16"
_aten = torch.ops.aten


class Kernels:
    """How long kernels take on a device, in seconds.

    Args:
        device: on which they run.

    Raises:
        NotSupportedError: it states no fused attention, or does not compute in bfloat16.
    """

    def __init__(self, device: Device) -> None:
        if DTYPE not in device.rates or device.attention_kernels not in device.attention:
            raise NotSupportedError(
                f"the device {device.name}: layouts are planned in {DTYPE} with fused attention; expected "
                "rates of both in its file, as that of h100 has them"
            )
        self.device = device
        self._launches = Launches(device, clocks="training")
        self.product = lru_cache(maxsize=None)(self._product)

    def _product(self, m: int, n: int, k: int) -> float:
        """Return the time of a matrix product, m × k by k × n."""
        x, weight = torch.empty(m, k, device="meta"), torch.empty(n, k, device="meta")
        operands = x.bfloat16(), weight.bfloat16().t()
        result = torch.empty(m, n, dtype=torch.bfloat16, device="meta")
        launches = self._launches.of(_aten.mm.default, operands, {}, result)
        return sum(one.duration_ps for one in launches) / SECOND

    def moved(self, nbytes: float) -> float:
        """Return the time of a kernel that memory bounds."""
        return self.device.duration_ps(0, int(nbytes), "") / SECOND

    def attention(self, sequences: int, seq: int, heads: int, head: int) -> tuple[float, float]:
        """Return both passes of fused causal attention to whole sequences."""
        device = self.device
        shape = AttentionShape(sequences * heads, seq, seq, True, seq, head, head)
        each = 2 * sequences * seq * heads * head
        rates, peak = device.attention[device.attention_kernels], device.peaks[DTYPE]
        forward, backward = (
            attention_ps(shape, rates, peak, is_back, nbytes, device, launches * device.launch_ps) / SECOND
            for is_back, nbytes, launches in ((False, 4 * each, 1), (True, 14 * each, 3))
        )
        return forward, backward

    def experts(self, tokens: int, hidden: int, inner: int, experts: int, gated: bool) -> float:
        """Return the forward pass of experts that have equal parts of so many tokens between them.

        Raises:
            NotSupportedError: the device states no kernels of experts.
        """
        name = f"{self.device.expert_kernels}_{DTYPE}"
        if name not in self.device.experts:
            raise NotSupportedError(
                f"the device {self.device.name}: its file states no kernels of experts in {DTYPE}; expected "
                f"[experts.{name}], as that of h100 has it"
            )
        layer = ExpertLayer(tokens, hidden, inner, (tokens / experts,) * experts, gated)
        return layer_ps(layer, self.device.experts[name], self.device, DTYPE) / SECOND
