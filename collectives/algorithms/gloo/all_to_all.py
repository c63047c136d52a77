"""Gloo's all-to-all: all messages posted at once, of which some wait for the one that comes the other way."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.program import Copy, Operation, Recv, Send, Step, algorithm


def _waits(early: int, late: int, world_size: int) -> bool:
    """Return whether the message from *early* to *late* waits for the one that comes the other way."""
    distance = late - early
    by_chance = 2 * distance > world_size and distance % 2 == 0
    return 2 * distance == world_size or by_chance


@algorithm(name="gloo_direct", collective="all_to_all", scratch_chunks=lambda world_size: world_size)
def gloo_all_to_all(rank: int, world_size: int) -> Iterator[Step]:
    """Yield this rank's steps of Gloo's all-to-all among ranks that begin one after another.

    Gloo sends once the peer has said that its receive is posted, and both ways between two ranks are one
    connection, in order.  For distances 1, 2, … a rank posts the send to the rank so far above it, then the
    receive from the rank so far below.  Whoever comes later finds its peer's receive posted and sends at
    once; if it has not posted its own receive by then (if its peer is at most half the way round above it)
    the word that it has stands behind the whole message, and the peer's message waits for that to pass.

    Whichever comes later, that happens between ranks that are half the ranks apart.  Between others it
    happens in one of two orders, and which rank comes first is the machine's affair: here lower numbers
    come first, and of the messages that may wait, those to ranks more than half the ranks above, every
    second one (at an even distance) does.  A run in which all ranks begin at once has none, as `direct`, and
    one in which all begin far apart more, so measured times of one size lie up to a third apart.

    Source: gloo/alltoall.cc, gloo/transport/tcp/pair.cc; connections watched with ``ss``.
    """
    first: list[Operation] = []
    second: list[Operation] = []
    kept: list[Operation] = []  # a part whose place is taken before it is sent
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        if rank < right and _waits(rank, right, world_size):
            kept.append(Copy(right, world_size + right))
            second.append(Send(right, chunk=world_size + right))
        else:
            first.append(Send(right, chunk=right))
        late = left < rank and _waits(left, rank, world_size)
        (second if late else first).append(Recv(left, chunk=left))

    for step in (kept, first, second):
        if step:
            yield tuple(step)
