"""Rules of torch's backends: which calls Gloo and NCCL refuse, and which they get wrong without a word.

A script that runs here over a network that is simulated, under the name of a backend, must not pass where the
backend does not.  Gloo takes the elements of some tensors in the order of memory, whatever their strides, so
that results are wrong; elsewhere both look at strides or copy.

    collective                            Gloo                               NCCL
    all_reduce, broadcast, reduce         wrong unless elements are dense    refused unless contiguous
    scatter; reduce_scatter of a list     wrong unless dense and alike       refused unless contiguous
    all_to_all_single                     refused unless contiguous          refused unless contiguous
    other collectives on one tensor       right                              refused unless contiguous
    lists of tensors that are gathered    right                              right
    messages                              refused unless contiguous          in the order of memory

Gloo wants the tensors of a list to be of one shape, and a long tensor to have the rows of its parts; it
does not average integers, which NCCL does towards 0.

Source: torch 2.11 to 2.13, torch/csrc/distributed/c10d: ProcessGroupGloo.cpp (``GENERATE_ALL_TYPES``,
``checkSingleTensor``; a test carries the calls out over Gloo), ProcessGroupNCCL.cpp
(``check_gpu_single_tensor``, ``getNcclReduceOp``), NCCLUtils.cpp (``ncclDataType``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch

from collectives.communicators.native import VENDOR_DTYPES
from collectives.communicators.reduction import has_fractions

_BOTH = VENDOR_DTYPES | {torch.bool, torch.complex64, torch.complex128}  # numbers as bytes, and in pairs
DTYPES: dict[str, Collection[torch.dtype]] = {
    "gloo": _BOTH,
    "nccl": _BOTH | {torch.float8_e4m3fn, torch.float8_e5m2},
}
"""What collectives take; messages are bytes to Gloo."""

_WITHOUT_AVERAGE: dict[str, Collection[torch.dtype]] = {
    "gloo": {dtype for dtype in _BOTH if not has_fractions(dtype)},
    "nccl": {torch.bool},
}
MESSAGE = "message"
PREMUL_SUM = "premul_sum"
"""The sum of what each rank has multiplied by a factor."""

LISTS = ("all_gather", "gather", "all_to_all")
"""Collectives on lists of tensors, whose elements both backends copy."""
_OF_ONE_SHAPE = (*LISTS, "scatter", "reduce_scatter")
_OF_ROWS = ("all_gather_single", "reduce_scatter_single")


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or (
        tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements are one block of memory, in any order of the dimensions."""
    block = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != block:
            return False
        block *= size
    return True


_GLOO_LAYOUTS: dict[str, tuple[Callable[[torch.Tensor], bool], str]] = {
    "all_reduce": (_is_dense, "takes the wrong elements of"),
    "broadcast": (_is_dense, "takes the wrong elements of"),
    "reduce": (_is_dense, "takes the wrong elements of"),
    "scatter": (_is_dense, "takes the wrong elements of"),
    "reduce_scatter": (_is_dense, "takes the wrong elements of"),
    "all_to_all_single": (torch.Tensor.is_contiguous, "refuses"),
    MESSAGE: (torch.Tensor.is_contiguous, "refuses"),
}


def backend_of(asked_for: str, device_type: str) -> str:
    """Return ``gloo`` or ``nccl``, as the name that a script gave means it for tensors of *device_type*.

    Such as ``nccl`` or ``cpu:gloo,cuda:nccl``; empty: neither.
    """
    named = dict(part.split(":", 1) for part in asked_for.split(",") if ":" in part)
    name = named.get(device_type, "") if named else asked_for
    return name if name in DTYPES else ""


def refusal(backend: str, collective: str, tensors: Sequence[torch.Tensor], op: str = "") -> str | None:
    """Return why *backend* refuses a call, or what it gets wrong; None where it carries it out.

    Args:
        backend: ``gloo`` or ``nccl``.
        collective: as ``torch.distributed`` names it, for one tensor or a list; or `MESSAGE`.
        tensors: that the call is given.
        op: the reduction, if there is one.
    """
    for tensor in tensors:
        if collective != MESSAGE and tensor.dtype not in DTYPES[backend]:
            return f"{backend} has no {collective} of {tensor.dtype}: convert it"
        if backend == "gloo" and collective == "gather" and tensor.is_complex():
            return "gloo has no gather of complex numbers: give torch.view_as_real(tensor)"
    if backend == "nccl" and op in ("band", "bor", "bxor"):
        return f"nccl has no reduction by {op.upper()}: reduce over a group of gloo, or gather and reduce"
    if backend == "gloo" and op == PREMUL_SUM:
        return "gloo has no PREMUL_SUM: multiply the tensor before the sum"
    if op == "avg" and (dtype := tensors[0].dtype) in _WITHOUT_AVERAGE[backend]:
        return f"{backend} has no average of {dtype}: sum, and divide"
    if backend == "gloo" and not _have_shapes(collective, tensors):
        shapes = " and ".join(dict.fromkeys(str(tuple(tensor.shape)) for tensor in tensors))
        wants = "rows of one shape" if collective in _OF_ROWS else "one shape for all tensors"
        return f"gloo refuses {collective} of tensors of shapes {shapes}: it wants {wants}"
    wrong = next((tensor for tensor in tensors if not _has_layout(backend, collective, tensor)), None)
    if wrong is None and backend == "gloo" and collective in ("scatter", "reduce_scatter"):
        wrong = next((tensor for tensor in tensors if tensor.stride() != tensors[0].stride()), None)
    if wrong is None:
        return None
    does = _GLOO_LAYOUTS[collective][1] if backend == "gloo" else "refuses"
    what = "a message" if collective == MESSAGE else collective
    return (
        f"{backend} {does} a tensor of shape {tuple(wrong.shape)} and strides {wrong.stride()} in {what}: "
        "give tensor.contiguous()"
    )


def moves_in_memory_order(backend: str, collective: str, tensor: torch.Tensor) -> bool:
    """Return whether elements of a message come in the order of the sender's memory, not of its strides."""
    return backend == "nccl" and collective == MESSAGE and not _is_contiguous(tensor)


def _have_shapes(collective: str, tensors: Sequence[torch.Tensor]) -> bool:
    if collective in _OF_ROWS:
        long, part = tensors if collective == "all_gather_single" else reversed(tensors)
        return part.dim() > 0 and long.shape[1:] == part.shape[1:]
    return collective not in _OF_ONE_SHAPE or all(tensor.shape == tensors[0].shape for tensor in tensors)


def _has_layout(backend: str, collective: str, tensor: torch.Tensor) -> bool:
    if backend == "gloo":
        has_it, _ = _GLOO_LAYOUTS.get(collective, (_always, ""))
        return has_it(tensor)
    return collective in (MESSAGE, *LISTS) or _is_contiguous(tensor)


def _always(_: torch.Tensor) -> bool:
    return True
