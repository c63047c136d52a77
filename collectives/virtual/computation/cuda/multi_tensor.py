"""Foreach operations and fused optimizers: how torch packs many tensors into one kernel.

``multi_tensor_apply`` cuts tensors into chunks of 65,536 elements and launches a kernel whenever its list of
tensors or of chunks is full (aten/src/ATen/native/cuda/MultiTensorApply.cuh).  How long the lists are depends
on the number of tensors that belong together and on CUDA: the lengths here are those of CUDA 13, for which
torch 2.13 is built; with CUDA 12 they are a seventh.

Where the lists do not agree in type, or a tensor is not dense, torch takes an operation for each tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

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
