"""Attention that drops weights, for the values of virtual CUDA tensors: the CPU's fused kernel drops none.

Products and softmax, in single precision or double; the backward pass computes them again, and drops by the
same seed.  With weights W, the mask M of those kept, divided by the share that is kept, and D = W M:

    output = D V     dV = D' dO     dW = (dO V') M     dS = W (dW - sum(dW W))     dQ = dS K     dK = dS' Q
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DroppingAttention:
    """Attention of tensors (batch, heads, positions, head).

    Args:
        share: of the weights that is dropped.
        causal: no position looks at later ones.
        scale: of the products; None: that of the head's size.
        bias: is added to the products; None: nothing is.
        seed: of what is dropped.
    """

    share: float
    causal: bool
    scale: float | None
    bias: Tensor | None
    seed: int

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output, of the type of *query*."""
        weights, kept = self._weights_and_mask(query, key)
        return ((weights * kept) @ _precise(value)).to(query.dtype)

    def backward(self, grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of query, key and value."""
        weights, kept = self._weights_and_mask(query, key)
        grad = _precise(grad)
        of_value = (weights * kept).transpose(-2, -1) @ grad
        of_weights = (grad @ _precise(value).transpose(-2, -1)) * kept
        of_scores = (
            weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * self._factor(query)
        )
        of_query, of_key = of_scores @ _precise(key), of_scores.transpose(-2, -1) @ _precise(query)
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)

    def _factor(self, query: Tensor) -> float:
        return query.shape[-1] ** -0.5 if self.scale is None else self.scale

    def _weights_and_mask(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        scores = _precise(query) @ _precise(key).transpose(-2, -1) * self._factor(query)
        if self.bias is not None:
            scores = scores + self.bias
        if self.causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = torch.softmax(scores, -1)

        kept = torch.zeros_like(weights)
        if self.share < 1:
            generator = torch.Generator().manual_seed(self.seed)
            kept.bernoulli_(1 - self.share, generator=generator).div_(1 - self.share)
        return weights, kept


def drawn_seed() -> int:
    """Return a seed, drawn from the generator of this thread."""
    return int(torch.randint(1 << 62, ()).item())


def _precise(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
