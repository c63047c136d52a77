"""Checks of a call before it is made: tensors that fit together, roots and peers that are ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def check_root(root: int, world_size: int) -> None:
    """Refuse a root that is no rank.

    Raises:
        ValueError: there is no such rank.
    """
    if not 0 <= root < world_size:
        raise ValueError(f"root must be a rank from 0 to {world_size - 1}, got {root}")


def check_peer(peer: int, rank: int, world_size: int) -> None:
    """Refuse a peer that is no rank, or the rank itself.

    Raises:
        ValueError: there is no such rank, or it is this one.
    """
    if not 0 <= peer < world_size:
        raise ValueError(f"peer must be a rank from 0 to {world_size - 1}, got {peer}")
    if peer == rank:
        raise ValueError(
            f"peer must be another rank; rank {rank} cannot send to itself or receive from itself"
        )


def check_parts(whole: torch.Tensor, part: torch.Tensor, world_size: int) -> None:
    """Refuse a *whole* that does not consist of parts like *part*, one for each rank.

    Raises:
        ValueError: sizes or dtypes do not fit.
    """
    if whole.numel() != part.numel() * world_size or whole.dtype != part.dtype:
        raise ValueError(
            f"the longer tensor must hold {world_size} × {part.numel()} elements of {part.dtype}, "
            f"got {whole.numel()} of {whole.dtype}"
        )


def check_equal_parts(output: torch.Tensor, tensor: torch.Tensor, world_size: int) -> None:
    """Refuse an all-to-all between tensors that differ in size, or do not divide into parts.

    Raises:
        ValueError: dtypes or sizes do not fit.
    """
    if output.numel() != tensor.numel() or output.dtype != tensor.dtype or output.numel() % world_size:
        raise ValueError(
            f"output and tensor must be of one size and dtype, and divisible by {world_size} ranks, unless "
            f"the sizes of their parts are given; got {tuple(output.shape)} of {output.dtype} and "
            f"{tuple(tensor.shape)} of {tensor.dtype}"
        )


def check_splits(
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_splits: Sequence[int] | None,
    input_splits: Sequence[int] | None,
    rank: int,
    world_size: int,
) -> tuple[list[int], list[int]]:
    """Return the sizes of the parts of *output* and *tensor* along their first dimension.

    None means equal parts.

    Raises:
        ValueError: the tensors or the sizes do not fit each other.
    """
    if output.dtype != tensor.dtype or output.shape[1:] != tensor.shape[1:] or not output.dim():
        raise ValueError(
            "output and tensor must be alike but for the size of their first dimension; got "
            f"{tuple(output.shape)} of {output.dtype} and {tuple(tensor.shape)} of {tensor.dtype}"
        )
    into = _splits("output", output.shape[0], output_splits, world_size)
    out_of = _splits("input", tensor.shape[0], input_splits, world_size)
    if into[rank] != out_of[rank]:
        raise ValueError(
            f"rank {rank} gives itself {out_of[rank]} (input_splits) and expects {into[rank]} (output_splits)"
        )
    return into, out_of


def _splits(name: str, size: int, splits: Sequence[int] | None, world_size: int) -> list[int]:
    if splits is None:
        if size % world_size:
            raise ValueError(
                f"the {name} has size {size}, which {world_size} ranks do not divide; give {name}_splits"
            )
        return [size // world_size] * world_size
    given = [int(split) for split in splits]
    if len(given) != world_size or min(given) < 0 or sum(given) != size:
        raise ValueError(
            f"{name}_splits must be {world_size} sizes, one for each rank, with the sum {size}; got {given}"
        )
    return given
