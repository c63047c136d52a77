"""Compiled ``flex_attention``: one kernel, which computes the blocks that its mask leaves.

Eager, torch carries it out as products of all pairs, and so it comes here.  In a compiled region it is one
kernel forward and one backward.  How many blocks it computes say ``kv_num_blocks`` and
``full_kv_num_blocks``, where their values are known; where they are not, as in a run without data, the mask's
function says it, evaluated on indices, which are known in any case.  What the function looks at besides, such
as the number of each position's document, must be known.  Otherwise the kernel is charged as if nothing were
masked, and named as one that is not modelled.

A mask is evaluated once, for all pairs up to `_ALL_PAIRS`; of more, at every so many positions of a block
and at its last, which a notice says: parts of blocks that lie between are then overlooked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import (
    flex_attention,
    flex_attention_backward,
    flex_attention_backward_fake_tensor_mode,
    flex_attention_fake_impl,
)
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from collectives.virtual.computation.cuda.attention import AttentionShape
from collectives.virtual.computation.operations import nbytes_of
from collectives.virtual.computation.passes import current_pass
from collectives.virtual.gpu.rules import Execution
from collectives.virtual.gpu.values import UnknownValueError, fake_tensors, set_value, value_of, with_values
from collectives.virtual.notices import Notices

_SHAPES: dict[Any, Callable[..., Any]] = {
    flex_attention: flex_attention_fake_impl,
    flex_attention_backward: flex_attention_backward_fake_tensor_mode,
}
"""Results without data."""
_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd
_ALL_PAIRS = 1 << 26
_AT_ONCE = 1 << 22
"""Pairs of one step of an evaluation, which bound its memory."""


class Computed(NamedTuple):
    """What of a sequence's pairs of queries and keys a mask of blocks has computed.

    Attributes:
        pairs: on the mean over samples and heads.
        longest: keys of the queries that have most.
    """

    pairs: float
    longest: int


@dataclass(frozen=True)
class _Mask:
    """Mask of blocks, as the operator has it.

    Attributes:
        queries: of a sequence.
        keys: of a sequence.
        partial: blocks of keys that each block of queries sees a part of: samples × heads × blocks.
        full: those that it sees all of, or None.
        block: queries and keys of a block.
        function: of sample, head, query and key: whether that is seen.
    """

    queries: int
    keys: int
    partial: Tensor
    full: Tensor | None
    block: tuple[int, int]
    function: Callable[..., Tensor]

    @classmethod
    def of(cls, given: Sequence[Any], query: Tensor, key: Tensor) -> _Mask:
        block = min(given[-3], query.shape[-2]), min(given[-2], key.shape[-2])
        return cls(query.shape[-2], key.shape[-2], given[2], given[4], block, given[-1])

    def computed(self, execution: Execution, buffers: Sequence[Any]) -> Computed | None:
        """Return what is computed; None where nobody knows."""
        if self.partial not in _known:
            with _disable_current_modes():
                blocks = self._stated()
            if blocks is None:
                try:
                    with execution.on_values():
                        blocks = self._evaluated(execution.notices, buffers)
                except UnknownValueError:
                    return None
            queries, keys = self.block
            with _disable_current_modes():
                by_sequence = blocks.flatten(0, 1).double().sum(-1).mean().item()
                _known[self.partial] = Computed(by_sequence * queries * keys, int(blocks.max()) * keys)
        computed: Computed = _known[self.partial]
        return computed

    def _stated(self) -> Tensor | None:
        partial = value_of(self.partial)
        if self.full is None or partial is None:
            return partial
        full = value_of(self.full)
        return None if full is None else partial + full

    def _evaluated(self, notices: Notices, buffers: Sequence[Any]) -> Tensor:
        """Return how many blocks of keys each block of queries sees: samples × heads × blocks.

        Raises:
            UnknownValueError: the function looks at what is not known.
        """
        samples, heads = self.partial.shape[:2]
        step = 1
        while samples * heads * self.queries * self.keys > _ALL_PAIRS * step**2:
            step *= 2
        if step > 1:
            notices.add(
                f"masks of blocks with more than {_ALL_PAIRS} pairs are looked at every {step} positions"
            )
        queries, keys = (
            _looked_at(self.queries, self.block[0], step),
            _looked_at(self.keys, self.block[1], step),
        )
        seen = _vmap_for_bhqkv(self.function, prefix=(), suffix=(None,) * len(buffers))
        together = max(1, _AT_ONCE // (samples * heads * queries.shape[1] * keys.numel()))
        counts = []
        for some in queries.split(together):
            mask = seen(
                torch.arange(samples, dtype=torch.int32),
                torch.arange(heads, dtype=torch.int32),
                some.flatten(),
                keys.flatten(),
                *buffers,
            )
            mask = mask.expand(samples, heads, some.numel(), keys.numel())
            tiles = mask.reshape(samples, heads, *some.shape, *keys.shape).any(-1).any(-2)
            counts.append(tiles.sum(-1))
        return torch.cat(counts, -1)


_known: Any = WeakTensorKeyDictionary()
"""What masks have computed, by their numbers of blocks."""


def _looked_at(length: int, block: int, step: int) -> Tensor:
    """Return positions to look at, blocks × positions, each block's first and last among them."""
    offsets = torch.tensor(sorted({*range(0, block, step), block - 1}), dtype=torch.int32)
    begins = torch.arange(0, length, block, dtype=torch.int32)
    return (begins[:, None] + offsets).clamp(max=length - 1)


def is_flexible_attention(func: Any) -> bool:
    """Return whether *func* is the operator of ``flex_attention`` or that of its backward pass."""
    return func in _SHAPES


def carried_out(execution: Execution, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """Return the results of a call in a compiled region, as one kernel."""
    query, key, value = args[:3]
    backward = func is flex_attention_backward
    place = 9 if backward else 4
    given, buffers = (
        args[place],
        args[place + 4] if len(args) > place + 4 else kwargs.get("mask_mod_other_buffers", ()),
    )
    with _disable_current_modes(), execution.fake:
        results = _SHAPES[func](*args, **kwargs)
    for result in fake_tensors(results):
        execution.bear(result, func.name())
    if execution.has_data:
        with execution.on_values():
            values = func.py_kernels[_DENSE](*with_values(args), **with_values(kwargs))
        with _disable_current_modes():
            _pair(results, values)

    computed = _Mask.of(given, query, key).computed(execution, buffers)
    if computed is None:
        execution.note_unmodelled(
            f"compiled {func.name()} whose mask is not known, as if nothing were masked"
        )
        computed = Computed(query.shape[-2] * key.shape[-2], key.shape[-2])
    shape = AttentionShape(
        sequences=query.shape[0] * query.shape[1],
        queries=query.shape[-2],
        keys=key.shape[-2],
        causal=False,
        window=computed.longest,
        head=query.shape[-1],
        value_head=value.shape[-1],
        computed=computed.pairs,
    )
    dense = replace(shape, computed=None, window=shape.keys).operations(0)
    flops = round(dense * 5 / 2 if backward else dense)
    moved = nbytes_of((*args[: 6 if backward else 3], *results))
    execution.launch_block_masked(func.name(), query, shape, flops, moved, _pass(query, backward))
    return results


def _pass(query: Tensor, backward: bool) -> str:
    """Return the part of an iteration; the operator is called where gradients are switched off."""
    if backward or not query.requires_grad:
        return current_pass()
    return "forward" if torch._C._current_graph_task_id() == -1 else "recomputation"


def _pair(results: Any, values: Any) -> None:
    """Give *results* their values."""
    for result, value in zip(results, values, strict=True):
        if isinstance(result, tuple):
            _pair(result, value)
        elif isinstance(result, Tensor):
            set_value(
                result, torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).copy_(value)
            )
