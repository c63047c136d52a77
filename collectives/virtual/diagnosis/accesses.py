"""Accesses to a storage: which bytes of it an operation reads or writes, on which stream, from which line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from torch import Tensor

from collectives.virtual.diagnosis.places import users_frames

Place = tuple[CodeType, int] | None
"""Code of the user's, and the line in it."""


class Access(NamedTuple):
    """An operation that reads or writes a storage.

    Attributes:
        stream: on which it runs.
        epoch: the stream's own count then.
        operation: its name.
        place: of the user's code that issues it.
        writes: whether it writes.
        is_call: whether it is a collective or a message.
        begin: first byte.
        end: the byte after the last.
        is_dense: whether all bytes between are its.
    """

    stream: int
    epoch: int
    operation: str
    place: Place
    writes: bool
    is_call: bool
    begin: int
    end: int
    is_dense: bool


def bytes_of(tensor: Tensor, nbytes: int) -> tuple[int, int, bool]:
    """Return the first byte of *tensor* in its storage, the one after the last, and whether all are its."""
    size = tensor.element_size()
    own = tensor.numel() * size
    if own == nbytes:
        return 0, nbytes, True
    begin = int(tensor.storage_offset()) * size
    last = sum(
        int((length - 1) * stride) for length, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    end = begin + (last + 1) * size
    return begin, end, own == end - begin


def overlap(one: Access, other: Access) -> bool:
    """Return whether two accesses to a storage share bytes; of two with gaps, whether they are equal."""
    if one.is_dense and other.is_dense:
        return one.begin < other.end and other.begin < one.end
    if one.is_dense or other.is_dense:
        dense, gaps = (one, other) if one.is_dense else (other, one)
        return dense.begin <= gaps.begin < dense.end or dense.begin < gaps.end <= dense.end
    return (one.begin, one.end) == (other.begin, other.end)


def place_here() -> Place:
    """Return the line of the user's code that has led here."""
    frame = next(users_frames(sys._getframe(2)), None)
    return None if frame is None else (frame.f_code, frame.f_lineno)


def spell_place(place: Place) -> str:
    """Return *place* in words, such as ``train.py:12``."""
    return "torch itself" if place is None else f"{Path(place[0].co_filename).name}:{place[1]}"


def described(tensor: Tensor) -> str:
    """Return the type and the shape of *tensor* in words."""
    sizes = " × ".join(map(str, tensor.shape)) or "one number"
    return f"a {str(tensor.dtype).removeprefix('torch.')} tensor ({sizes})"
