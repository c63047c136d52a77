"""Bytes that kernels of CUDA move, where the operation's schema does not tell, and how many kernels it takes.

| operation | moves |
|---|---|
| backward pass of a norm over the last dimensions | its operands a second time, for gradients of weights |
| norm of pictures in training | pictures twice, for statistics and for results; in its backward pass both |
| gradient of ``nll_loss`` | only the result, zeros and one number a row |
| fused optimizers | gradients once; they are written only where they are unscaled |
| fused attention, backward | gradients of queries in float32, six times the queries |

All others move what the schema names once (`collectives.virtual.computation.operations`).

Of foreach operations and fused optimizers, ``multi_tensor_apply`` cuts tensors into chunks of 65,536 elements
and launches a kernel whenever its list of tensors or of chunks is full
(aten/src/ATen/native/cuda/MultiTensorApply.cuh).  How long the lists are depends on the number of tensors
that belong together and on CUDA: the lengths here are those of CUDA 13, for which torch 2.13 is built; with
CUDA 12 they are a seventh.  Where the lists do not agree in type, or a tensor is not dense, torch takes an
operation for each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collectives.virtual.computation.operations import Operation, nbytes_of

Named = Mapping[str, Any]

_KERNELS: Mapping[str, int] = {
    "_fused_rms_norm_backward": 2,
    "_thnn_fused_lstm_cell_backward_impl": 2,
    "convolution_backward": 2,
    "embedding_dense_backward": 5,  # zeros, sort, bounds, sums of parts, sums
    "linalg_vector_norm": 2,
    "native_batch_norm": 2,
    "native_batch_norm_backward": 2,
    "native_group_norm": 2,
    "native_group_norm_backward": 3,
    "native_layer_norm_backward": 2,
    "nll_loss_backward": 2,
}
"""Kernels that an operation launches one after another, where they are more than one."""
_ATTENTION_BACKWARD_KERNELS = 3  # products of results and gradients, the pass, and a cast


def kernels(name: str) -> int:
    """Return how many kernels the operation *name* launches."""
    if "attention" in name and "backward" in name:
        return _ATTENTION_BACKWARD_KERNELS
    return _KERNELS.get(name, 1)


def nbytes(
    name: str,
    operation: Operation,
    named: Named,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
) -> int:
    """Return how many bytes a call reads and writes."""
    if name == "nll_loss_backward":
        return nbytes_of(result) + nbytes_of(named["target"])
    moved = operation.nbytes(args, kwargs, result)
    if "attention" in name and "backward" in name:
        return moved + 6 * nbytes_of(named["query"])
    more = _MORE_BYTES.get(name)
    return moved if more is None else moved + more(named)


def _norm_again(named: Named) -> int:
    """Count operands of gradients of weights and biases, where those are asked for."""
    mask = named["output_mask"]
    return nbytes_of(named["grad_out"]) + nbytes_of(named["input"]) if any(mask[1:]) else 0


def _statistics(named: Named) -> int:
    trains = named.get("training", named.get("train", True))
    return nbytes_of(named["input"]) if trains else 0


def _statistics_backward(named: Named) -> int:
    pictures = named.get("grad_out", named.get("grad_output"))
    return nbytes_of(pictures) + nbytes_of(named["input"])


def _unscaled(named: Named) -> int:
    """Take back the writing of gradients, unless the optimizer unscales them."""
    return 0 if named.get("grad_scale") is not None else -nbytes_of(named["grads"])


_MORE_BYTES: Mapping[str, Callable[[Named], int]] = {
    "_batch_norm_with_update": _statistics,
    "_fused_adagrad_": _unscaled,
    "_fused_adam_": _unscaled,
    "_fused_adamw_": _unscaled,
    "_fused_rms_norm_backward": _norm_again,
    "_fused_sgd_": _unscaled,
    "_native_batch_norm_legit": _statistics,
    "batch_norm_backward": _statistics_backward,
    "cudnn_batch_norm": _statistics,
    "cudnn_batch_norm_backward": _statistics_backward,
    "native_batch_norm": _statistics,
    "native_batch_norm_backward": _statistics_backward,
    "native_layer_norm_backward": _norm_again,
}
"""Bytes besides those of the schema."""


_CHUNK = 65536
_BLOCKS = 2240
_TENSORS = (770, 448, 336, 252, 210)
"""Tensors of one kernel where 1, 2, … lists belong together."""


def packed(sizes: Sequence[int], lists: int) -> list[int]:
    """Return how many elements of a list each kernel of a foreach operation takes.

    Args:
        sizes: elements of each tensor of one list.
        lists: how many lists of tensors of these sizes the kernel addresses.
    """
    most = _TENSORS[min(lists, len(_TENSORS)) - 1]
    kernels: list[int] = []
    tensors = blocks = elements = 0
    for size in sizes:
        if not size:
            continue
        tensors += 1
        left = size
        while left:
            room = (_BLOCKS - blocks) * _CHUNK
            taken = min(left, room)
            left -= taken
            elements += taken
            blocks += -(-taken // _CHUNK)
            if blocks == _BLOCKS or (tensors == most and not left):
                kernels.append(elements)
                blocks = elements = 0
                tensors = 1 if left else 0
    return [*kernels, elements] if elements else kernels
