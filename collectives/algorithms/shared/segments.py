"""Segments: the pieces in which a pipelined program hands on a buffer."""

from __future__ import annotations

SEGMENTS = {"segments": range(1, 4097)}
"""How many there may be: more make no sense, as each is a step, and messages would be very small."""
