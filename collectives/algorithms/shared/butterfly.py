"""A butterfly over any number of ranks that pair up: which chunks travel when, by following the peers.

In each step of a butterfly every rank exchanges with one peer.  If the ranks are a power of two in
number, the pair halves what it has still to reduce.  If not, a chunk could reach its owner by several
ways, and be added twice.  So each chunk is followed from its owner backwards, from the last step to the
first: a rank that meets one from which the owner is reached, for the first time, parts with the chunk
in that step.  Every rank parts with every chunk but its own once: the fewest bytes that there can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives.program import Recv, RecvReduce, Send, Step


@dataclass(frozen=True, slots=True, eq=False)
class Butterfly:
    """A reduce-scatter by pairs, as tables.

    Chunks are numbered by the way that they take from rank 0, which keeps those together that travel
    together.

    Attributes:
        peers: with whom a rank pairs, shape (steps, ranks).
        parting: the step in which a rank parts with a chunk, or the number of steps for its own;
            shape (ranks, chunks).
        owner: the rank that reduces a chunk, shape (chunks,).
        position: the chunk that a rank reduces, shape (ranks,).
    """

    peers: Any
    parting: Any
    owner: Any
    position: Any

    def reduce_scatter(self, rank: int) -> Iterator[Step]:
        """Yield steps after which *rank* has reduced the chunk at its position."""
        for number, peers in enumerate(self.peers):
            peer = peers[rank]
            given, kept = (self.parting[end] == number for end in (rank, peer))
            yield (
                *(Send(peer, *run) for run in _runs(given)),
                *(RecvReduce(peer, *run) for run in _runs(kept)),
            )


def follow(peers: Any) -> Butterfly:
    """Return the butterfly in which ranks pair up as *peers* says, shape (steps, ranks)."""
    num_steps, num_ranks = peers.shape
    ranks = np.arange(num_ranks)
    parting = np.full((num_ranks, num_ranks), -1)
    parting[ranks, ranks] = num_steps
    for step in reversed(range(num_steps)):
        first_reached = (parting < 0) & (parting[peers[step]] >= 0)
        parting[first_reached] = step
    at, way = np.zeros_like(ranks), np.zeros_like(ranks)
    for step in range(num_steps):
        moves = parting[at, ranks] == step
        at, way = np.where(moves, peers[step][at], at), 2 * way + moves
    owner = np.argsort(way)
    return Butterfly(peers, parting[:, owner], owner, np.argsort(owner))


def backwards(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the all-gather that takes back the way of a reduce-scatter."""
    for step in reversed(list(steps)):
        yield (
            *(Send(op.peer, op.chunk, op.num_chunks, op.when) for op in step if isinstance(op, RecvReduce)),
            *(Recv(op.peer, op.chunk, op.num_chunks, op.when) for op in step if isinstance(op, Send)),
        )


def _runs(mask: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield first, length and whether there is one, of each run of true entries along the last axis."""
    begins = mask.copy()
    begins[..., 1:] &= ~mask[..., :-1]
    number = begins.cumsum(axis=-1)
    for run in range(1, number.max(initial=0) + 1):
        entries = mask & (number == run)
        yield entries.argmax(axis=-1), entries.sum(axis=-1), entries.any(axis=-1)
