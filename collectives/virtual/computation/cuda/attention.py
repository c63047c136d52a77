"""Fused attention: arithmetic that is done, and how long the kernels that CUDA would take need for it.

Scores stay on the chip: queries, keys and values are read, results written.  A causal kernel leaves out the
tiles above the diagonal, and a window those beyond it; each query costs some keys more than it has
(`sim.hardware.AttentionRates`), half a tile of a causal one where the family does not say.  A call takes no
less than its longest row of tiles does on one multiprocessor.  The backward pass computes scores anew: 2.5
times the arithmetic, and its gradients of queries are summed in float32, which moves six times the queries'
bytes besides its operands.

Attention with a mask of blocks (``flex_attention``, compiled) computes whole blocks, those that have a pair
to be seen; its backward pass sums nothing through memory.  A device without rates of `flex` runs it at those
of FlashAttention 2: an assumption, as its authors measured 0.68 to 1.43 times FlashAttention 2 and 3 (Dong et
al., "Flex Attention", arXiv:2412.05496).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.hardware import AttentionRates, Device
from sim.units import SECOND

_TILE = 128


@dataclass(frozen=True)
class AttentionShape:
    """What one call of fused attention works on.

    Attributes:
        sequences: samples × heads of queries.
        queries: of a sequence.
        keys: of a sequence.
        causal: a query sees no later keys.
        window: keys that a query sees at most.
        head: dimension of a head of queries and keys.
        value_head: dimension of a head of values.
        computed: pairs of queries and keys of a sequence, if a mask of blocks says how many.
    """

    sequences: int
    queries: int
    keys: int
    causal: bool
    window: int
    head: int
    value_head: int
    computed: float | None = None

    def operations(self, edge: float | None = None) -> float:
        """Return the arithmetic of the forward pass: scores, and their products with values."""
        return 2 * self.sequences * self.pairs(edge) * (self.head + self.value_head)

    def pairs(self, edge: float | None = None) -> float:
        """Return the pairs of queries and keys of a sequence that are computed, *edge* more for a query."""
        if self.computed is not None:
            return self.computed
        whole = self.queries * self.keys
        if edge is None:
            edge = _TILE / 2 if self.causal or self.window < self.keys else 0
            return min(whole, self._seen() + self.queries * edge)
        return self._seen() + self.queries * edge

    def _seen(self) -> float:
        if not self.causal:
            return self.queries * min(self.keys, self.window)
        square = min(self.queries, self.keys)
        window = min(square, self.window)
        rest = (self.queries - square) * self.keys  # queries before the first key see all, as kernels take it
        return square * window - window * window / 2 + rest

    def longest_row(self, edge: float | None = None) -> float:
        """Return the arithmetic of the longest row of tiles."""
        keys = min(self.keys, self.window) + (edge or 0)
        return 2 * min(_TILE, self.queries) * keys * (self.head + self.value_head)


def attention_shape(named: Mapping[str, Any], heads_last: bool) -> AttentionShape:
    """Return what a call works on whose arguments are *named*.

    Args:
        named: the arguments by name.
        heads_last: sizes are samples × positions × heads × dimension, else heads before positions.
    """
    query, key, value = (named[name].shape for name in ("query", "key", "value"))
    places = (-3, -2) if heads_last else (-2, -3)  # of positions and heads
    samples = query[0] if len(query) == 4 else 1
    keys = key[places[0]]
    window = named.get("window_size_left")
    return AttentionShape(
        sequences=samples * query[places[1]],
        queries=query[places[0]],
        keys=keys,
        causal=bool(named.get("is_causal") or named.get("custom_mask_type")),
        window=keys if window is None or window < 0 else min(keys, window + 1),
        head=query[-1],
        value_head=value[-1],
    )


def attention_ps(
    shape: AttentionShape,
    rates: AttentionRates,
    peak: int,
    backward: bool,
    nbytes: int,
    device: Device,
    launches_ps: int,
) -> int:
    """Return how long a call takes, in picoseconds.

    Args:
        shape: of the call.
        rates: of the family of kernels.
        peak: operations per second of which the family's rates are parts.
        backward: it is a backward pass.
        nbytes: that it moves.
        device: on which it runs.
        launches_ps: of its kernels, where the family states no floor.
    """
    part = rates.backward if backward else rates.forward
    reached = peak * part * rates.of_head(shape.head)
    work = max(shape.operations(rates.edge), shape.longest_row(rates.edge) * (device.multiprocessors or 1))
    computing_ps = work * (5 if backward else 2) / 2 / reached * SECOND
    before_ps = launches_ps if rates.floor_ps is None else rates.floor_ps
    if rates.memory is None:
        return round(max(computing_ps, nbytes / device.memory_bandwidth * SECOND)) + before_ps
    moving_ps = nbytes / (rates.memory * device.peak_memory_bandwidth) * SECOND
    return round(computing_ps + moving_ps) + before_ps
