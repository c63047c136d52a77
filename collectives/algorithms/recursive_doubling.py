"""Recursive doubling: in each step every rank exchanges all it has with one twice as far away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from collectives.algorithms.halving_doubling import all_gather_cost, double
from collectives.algorithms.shared.power_of_two import floor_log2, folded, folded_all_gather, is_power_of_two
from collectives.program import Cost, RecvReduce, Send, Step, algorithm


def exchange_all_cost(world_size: int) -> Cost:
    """Return what it costs to exchange whole buffers, folded into a power of two."""
    doublings, folds = floor_log2(world_size), not is_power_of_two(world_size)
    return Cost(doublings + 2 * folds, Fraction(doublings + folds))


@algorithm(num_chunks=1, array_form=True, cost=exchange_all_cost)
def recursive_doubling(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a recursive-doubling all-reduce.

    In step s the ranks whose numbers differ in bit s alone exchange and reduce their whole
    buffers: ``log2 p`` steps of n bytes, half of what the tree needs.  Where p is no power of two,
    ``p - 2^k`` ranks fold theirs into their neighbours': ``k + 2`` steps, ``k + 1`` buffers sent.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
    in MPICH", IJHPCA 19(1), 2005, on all-reduce.
    """
    yield from folded(exchange_all, rank, world_size, num_chunks=1)


def _differs_in_one_bit(rank: int, step: int, world_size: int) -> int:
    return rank ^ (1 << step)


def exchange_all(
    rank: int, world_size: int, *, peer_in_step: Callable[[int, int, int], int] = _differs_in_one_bit
) -> Iterator[Step]:
    """Yield the steps of a rank that exchanges its whole buffer with another peer in each of them."""
    for step in range(floor_log2(world_size)):
        peer = peer_in_step(rank, step, world_size)
        yield Send(peer, chunk=0), RecvReduce(peer, chunk=0)


@algorithm(name="recursive_doubling", collective="all_gather", array_form=True, cost=all_gather_cost)
def recursive_doubling_all_gather(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of a recursive-doubling all-gather.

    In step s the ranks whose numbers differ in bit s alone exchange the ``2^s`` chunks that each
    has: ``log2 p`` steps, the fewest with one message each, and ``(p-1)/p`` of the buffer sent, the
    fewest bytes that there can be.  Where p is no power of two, ``p - 2^k`` ranks give their chunk to
    their neighbour first, and get the whole buffer from it last.

    Source: as `recursive_doubling`, on all-gather; the folding is that of its all-reduce.
    """
    yield from folded_all_gather(partial(double, order="far"), rank, world_size)
