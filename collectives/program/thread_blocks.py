"""Thread blocks that carry out a program on GPUs, as a file of MSCCL XML states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Ends(NamedTuple):
    """The channel of a connection in the file, and its thread blocks, numbered over all ranks.

    ``sender`` is -1 where each message was received in the same step, by the same thread block.
    """

    channel: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class ThreadBlocks:
    """Which thread blocks a program has, and which of them send and receive its messages.

    Attributes:
        protocol: ``LL``, ``LL128`` or ``Simple``, or another word of the file.
        names: of the thread blocks of all ranks, for people.
        num_channels: of the file.
        ends: of each connection of the program, by sender, receiver and channel.
    """

    protocol: str
    names: tuple[str, ...]
    num_channels: int
    ends: Mapping[tuple[int, int, int], Ends] = field(repr=False)
