"""Rows: the tensors of several ranks as one tensor with a row for each of them, and back."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from operator import index
from typing import Any, TypeAlias

import torch

from collectives.communicators.dispatch_modes import hidden_from_modes
from collectives.errors import NotSupportedError

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""A tensor of the script, and what stands for it at the door (`collectives.torch_backend.door`)."""


def check_alike(rank: int, tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Refuse *parts*, one for each rank, that are not all like the *tensor* of *rank*.

    Raises:
        NotSupportedError: one has another size or dtype.
    """
    for peer, part in enumerate(parts):
        if part.numel() != tensor.numel() or part.dtype != tensor.dtype:
            raise NotSupportedError(
                f"the tensors of all ranks must have one size and dtype: rank {rank} has "
                f"{tuple(tensor.shape)} of {tensor.dtype}, the one for rank {peer} is "
                f"{tuple(part.shape)} of {part.dtype}"
            )


def check_number(parts: Sequence[torch.Tensor], world_size: int) -> None:
    """Refuse *parts* that are not one for each rank of the group.

    Raises:
        ValueError: they are more, or fewer.
    """
    if len(parts) != world_size:
        raise ValueError(
            f"a list of {len(parts)} tensors for {world_size} ranks: the list must have one for each rank of "
            "the group"
        )


def written_anywhere(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor*, or for an inference tensor one that shares its memory and is none.

    A collective writes when it is done, which may be outside of inference mode, as a backend in C++ does.
    """
    if not tensor.is_inference() or tensor.layout != torch.strided or tensor.is_meta:
        return tensor
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def joined(plains: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all elements of *plains* in one flat tensor; on ``meta`` if one of them is there."""
    flat = [plain.data.reshape(-1) for plain in plains]
    if any(plain.is_meta for plain in plains):
        flat = [plain.to("meta") for plain in flat]
    return torch.cat(flat)


@hidden_from_modes
def copy_rows(parts: Sequence[Pair], rows: Iterable[torch.Tensor]) -> None:
    """Copy each row to what stands for its part; a row without values leaves it as it is."""
    for (_, plain), row in zip(parts, rows, strict=False):
        if not row.is_meta:
            plain.data.copy_(row.view(plain.shape))


def sizes_of(given: Any) -> list[int] | None:
    """Return the sizes of parts that torch takes where a call is *given* them; None: there are none.

    Raises:
        TypeError: torch takes no such object (pybind11's ``std::vector<int64_t>``), or a part's size is no
            whole number.
    """
    if given is None:
        return None
    is_sequence = (
        hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, Mapping)
    )
    if not (is_sequence or isinstance(given, Generator | Set | map)) or isinstance(given, torch.Tensor | str):
        raise TypeError(f"sizes of parts: expected a list of whole numbers, got {type(given).__name__}")
    return [index(size) for size in given] or None
