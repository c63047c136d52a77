"""Copies that a communicator makes around a program, whose ranks work on one whole buffer.

Where the buffer of a collective consists of the ranks' parts, a call brings them together and apart by copies
(`collectives.communicators.programs`): a rank's part into the whole, all that it gives where that must not be
overwritten, and its part of the result out of it.  So is what ranks give to a reduction that is another's.
"""

from __future__ import annotations

from fractions import Fraction

_COPIED = {
    "all_gather": (0, 1),
    "gather": (0, 1),
    "reduce": (1, 0),
    "reduce_scatter": (1, 1),
    "scatter": (1, 1),
    "all_to_all": (1, 0),
}


def staged_nbytes(collective: str, num_ranks: int, nbytes: int) -> int:
    """Return the bytes that the busiest rank copies before a program of *collective* and after it.

    Args:
        collective: its name; of others, tensors are worked on where they lie.
        num_ranks: of the group.
        nbytes: of the whole buffer, as nccl-tests counts it.
    """
    wholes, parts = _COPIED.get(collective, (0, 0))
    return int(nbytes * (wholes + Fraction(parts, num_ranks)))
