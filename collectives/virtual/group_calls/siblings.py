"""Siblings: groups that were made together, such as the tensor-parallel groups of all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Hosts: TypeAlias = tuple[int, ...]
"""The ranks of a group, by number in the run, in the order of the group."""

Ordinal: TypeAlias = tuple[int, ...] | tuple[int, str, int]
"""Which of the groups of the same hosts it is, and which of its communicators; equal on all its ranks."""


class Siblings(Protocol):
    """Knows which groups were made together, as `collectives.virtual.folding.partitions.Partitions`."""

    def partition(self, hosts: Hosts, ordinal: int) -> Sequence[Hosts]:
        """Return all groups made together with that of *hosts*, itself among them; no rank is in two."""


class NoSiblings:
    """Every group by itself; a `Siblings`."""

    def partition(self, hosts: Hosts, ordinal: int) -> Sequence[Hosts]:
        """Return the group alone."""
        return (hosts,)
