"""Divisions of tensors over ranks, which tell ranks apart that have unequal parts."""

from __future__ import annotations

from collectives.virtual.world import VirtualWorld
from sim.cluster import current_rank_thread


def note_division(size: int, parts: int) -> None:
    """Note that *size* rows are divided over *parts* ranks of a group; all parts but the last are equal."""
    rank_thread = current_rank_thread()
    if rank_thread is not None:
        VirtualWorld.of(rank_thread.cluster).classes.note_division(size, parts)
