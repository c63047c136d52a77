"""Fused attention: arithmetic that is done, and bytes that are moved, of the kernels that CUDA would take.

Scores stay on the chip: queries, keys and values are read, results written.  A causal kernel leaves out the
tiles above the diagonal, so that of a square S × S it does S (S + 128) / 2, with tiles of 128.  The backward
pass computes scores anew: 2.5 times the arithmetic, and its gradients of queries are summed in float32,
which moves six times the queries' bytes besides its operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TILE = 128


@dataclass(frozen=True)
class AttentionShape:
    """What one call of fused attention works on.

    Attributes:
        products: queries × keys that are computed, over all samples and heads.
        head: dimension of a head of queries and keys.
        value_head: dimension of a head of values.
    """

    products: int
    head: int
    value_head: int

    @property
    def operations(self) -> int:
        """Arithmetic of the forward pass: scores, and their products with values."""
        return 2 * self.products * (self.head + self.value_head)

    @property
    def backward_operations(self) -> int:
        """Arithmetic of the backward pass: scores again, and four gradients."""
        return self.operations * 5 // 2


def attention_shape(named: Mapping[str, Any], heads_last: bool) -> AttentionShape:
    """Return what a call works on whose arguments are *named*.

    Args:
        named: the arguments by name.
        heads_last: sizes are samples × positions × heads × dimension, else heads before positions.
    """
    query, key, value = (named[name].shape for name in ("query", "key", "value"))
    places = (-3, -2) if heads_last else (-2, -3)  # of positions and heads
    queries, heads = query[places[0]], query[places[1]]
    keys = key[places[0]]
    samples = query[0] if len(query) == 4 else 1

    pairs = queries * keys
    if named.get("is_causal") or named.get("custom_mask_type"):
        square = min(queries, keys)
        pairs = min(pairs, square * (square + _TILE) // 2 + max(0, queries - keys) * keys)
    return AttentionShape(samples * heads * pairs, query[-1], value[-1])
