"""Gloo's broadcast tree: a binomial tree in which every rank serves its nearest child first."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from collectives.algorithms.shared.doubling import doublings, num_doublings
from collectives.program import Cost, Recv, Send, Step, algorithm


def _cost(world_size: int) -> Cost:
    return Cost(num_doublings(world_size), Fraction(num_doublings(world_size)))


@algorithm(name="gloo_tree", collective="broadcast", num_chunks=1, array_form=True, cost=_cost)
def gloo_tree_broadcast(rank: int, world_size: int, *, root: int = 0) -> Iterator[Step]:
    """Yield this rank's steps of Gloo's broadcast from *root*.

    Counted from the root, ranks below ``2^k`` have the buffer before step k, in which each of them sends
    it to the rank ``2^k`` above.  `tree` has the same depth and sends the same bytes, but there the root
    serves the farthest first, so other ranks pass the buffer on.

    Source: gloo/broadcast.cc.
    """
    place = (rank - root) % world_size
    for distance in doublings(world_size):
        yield (
            Send(
                (rank + distance) % world_size,
                chunk=0,
                when=(place < distance) & (place + distance < world_size),
            ),
            Recv((rank - distance) % world_size, chunk=0, when=(place >= distance) & (place < 2 * distance)),
        )
