"""Totals of what one rank has computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Totals:
    """What one rank has computed.

    Attributes:
        operations: that cost something.
        flops: a multiplication and an addition are two.
        nbytes: read and written.
    """

    operations: int = 0
    flops: int = 0
    nbytes: int = 0

    def add(self, flops: int, nbytes: int) -> None:
        """Add an operation."""
        self.operations += 1
        self.flops += flops
        self.nbytes += nbytes
