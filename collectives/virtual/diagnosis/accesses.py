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


class Region(NamedTuple):
    """The bytes of a tensor: blocks that are equally long, in rows of equal distances.

    Attributes:
        begin: the first byte.
        end: the byte after the last.
        rows: by falling distance, the distance in bytes and how many there are; none: it is one block.
    """

    begin: int
    end: int
    rows: tuple[tuple[int, int], ...] = ()

    def moved(self, distance: int) -> Region:
        """Return it further on by *distance* bytes."""
        return Region(self.begin + distance, self.end + distance, self.rows)

    @property
    def first_row(self) -> Region:
        """What lies in the first of its outermost rows."""
        distance, number = self.rows[0]
        return Region(self.begin, self.end - distance * (number - 1), self.rows[1:])


class Access(NamedTuple):
    """An operation that reads or writes a storage.

    Attributes:
        stream: on which it runs.
        epoch: the stream's own count then.
        operation: its name.
        place: of the user's code that issues it.
        writes: whether it writes.
        is_call: whether it is a collective or a message.
        region: of the storage.
    """

    stream: int
    epoch: int
    operation: str
    place: Place
    writes: bool
    is_call: bool
    region: Region


def region_of(tensor: Tensor, begin: int) -> Region:
    """Return the bytes of *tensor*, whose first element is at the byte *begin*."""
    block = tensor.element_size()
    rows: list[tuple[int, int]] = []
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        distance = int(stride) * tensor.element_size()
        if length == 1 or not distance:
            continue
        if distance == block and not rows:
            block *= int(length)
        else:
            rows.insert(0, (distance, int(length)))
    return Region(
        begin, begin + block + sum(distance * (number - 1) for distance, number in rows), tuple(rows)
    )


def overlap(one: Region, other: Region) -> bool:
    """Return whether two regions share bytes."""
    if one.end <= other.begin or other.end <= one.begin:
        return False
    if not one.rows and not other.rows:
        return True
    if not one.rows or (other.rows and other.rows[0] > one.rows[0]):
        one, other = other, one
    row = one.first_row
    distance, number = one.rows[0]
    least, most, against = 0, number - 1, other
    if other.rows and other.rows[0][0] == distance:  # only how far apart two rows are makes a difference
        least, against = 1 - other.rows[0][1], other.first_row
    least = max(least, (against.begin - row.end) // distance + 1)
    most = min(most, (against.end - row.begin - 1) // distance)
    return any(overlap(row.moved(distance * place), against) for place in range(least, most + 1))


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
