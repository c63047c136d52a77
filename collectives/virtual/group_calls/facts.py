"""Facts of a call: what decides how long it takes, equal on all ranks of its group but for the splits."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.execution.call import Call
from collectives.program import Algorithm
from collectives.program.chunking import Chunking


@dataclass(frozen=True)
class CallFacts:
    """What one rank says of a collective or message that it calls.

    Attributes:
        call: its lane, its number in that, and what it is; ranks are numbered within the group.
        algorithm: the program of every rank: root bound, placed on nodes; for messages that of
            `collectives.communicators.point_to_point.message`.
        chunking: how the program divides what it sends.
        splits: where an all-to-all is of parts of any size: elements of each part that this rank receives,
            and of each that it sends.
        delay_ps: from a rank's coming until its first step.
        limit_ps: how long the first rank that comes waits for the others; None: for ever.
    """

    call: Call
    algorithm: Algorithm
    chunking: Chunking
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    delay_ps: int = 0
    limit_ps: int | None = None
