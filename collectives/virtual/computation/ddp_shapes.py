"""Comparison of the parameters of DistributedDataParallel among ranks whose computation is charged.

C++ asks each rank for every other rank's number of parameters, one element at a time.  Under a model of
computation each of these questions is an operation that goes through Python, so that building a model took
time in the square of the number of ranks.  Here all but one, for which the host waits, are answered without
the model; what is exchanged, charged and refused is the same.

Source: ``verify_params_across_processes`` of torch (``torch/csrc/distributed/c10d/reducer.cpp``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.parallel.distributed as stock
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from collectives.virtual.isolation.patching import on_ranks, replaced
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import RankThread


def parameters_compared() -> AbstractContextManager[None]:
    """Return a context in which ranks compare their parameters in linear time, where that is charged."""
    name = "_verify_param_shape_across_processes"
    original: Callable[..., None] = getattr(stock, name)

    def verify(_: RankThread, process_group: Any, tensors: Sequence[Tensor], logger: Any = None) -> None:
        gpu = current_gpu()
        if logger is None and (gpu is None or not gpu.in_use):  # tensors of the CPU are charged
            _verify(process_group, tensors)
        else:
            original(process_group, tensors, logger)

    return replaced([(stock, name, on_ranks(original, verify))])


def _verify(process_group: Any, tensors: Sequence[Tensor]) -> None:
    """Compare parameters with those of rank 0.

    Raises:
        RuntimeError: their number, a size or a stride differs; in torch's words.
    """
    rank, device = process_group.rank(), tensors[0].device
    with _disable_current_modes():
        count = torch.tensor([len(tensors)], device=device)
        counts = count.new_empty(process_group.size())
    process_group._allgather_base(counts, count).wait()
    counts[0].item()  # the host waits
    with _disable_current_modes():
        for other, number in enumerate(counts.tolist()):
            if number != len(tensors):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank {rank} has {len(tensors)} params, "
                    f"while rank {other} has inconsistent {number} params."
                )
        own = [number for tensor in tensors for number in (*tensor.size(), *tensor.stride())]
        metadata = torch.tensor(own)
        control = torch.empty_like(metadata)

    of_root = metadata.to(device)
    process_group.broadcast([of_root]).wait()
    control.copy_(of_root)
    with _disable_current_modes():
        given = control.tolist()
    if given != own:
        raise RuntimeError(_difference(rank, tensors, given))


def _difference(rank: int, tensors: Sequence[Tensor], given: Sequence[int]) -> str:
    """Return which parameter differs first from *given*, the sizes and strides of those of rank 0."""
    position = 0
    for number, tensor in enumerate(tensors):
        for what, own in (("sizes", tensor.size()), ("strides", tensor.stride())):
            if list(own) != list(given[position : position + len(own)]):
                return (
                    f"[{rank}]: params[{number}] in this process with {what} {list(own)} appears not to "
                    f"match {what} of the same param in process 0."
                )
            position += len(own)
    raise AssertionError("some parameter differs")
