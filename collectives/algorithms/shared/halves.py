"""The two halves of an all-reduce, under one name."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.program import Algorithm


@dataclass(frozen=True)
class Halves:
    """A reduce-scatter and the all-gather that follows it, under one name such as ``ring``.

    A parameter of a program whose default is one of these takes that name in text, as
    ``hierarchical:inner=ring`` does (see `collectives.catalogue.resolve`).
    """

    reduce_scatter: Algorithm
    all_gather: Algorithm

    @property
    def parts(self) -> tuple[Algorithm, Algorithm]:
        """The algorithms that it is made of."""
        return self.reduce_scatter, self.all_gather

    def __str__(self) -> str:
        return str(self.reduce_scatter)
