"""An algorithm of yours: all-reduce around a ring, right and wrong.

testbed verify examples/my_ring.py:my_ring --ranks 2-64
testbed verify examples/my_ring.py:broken_ring --ranks 4
testbed simulate examples/my_ring.py:my_ring --network dgx-h100 --ranks 64
"""

from collectives import Recv, RecvReduce, Send


def my_ring(rank, world_size):
    """Each chunk goes round once and is summed, then once more and is copied."""
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        chunk = (rank - step) % world_size
        yield Send(right, chunk), RecvReduce(left, (chunk - 1) % world_size)
    for step in range(world_size - 1):
        chunk = (rank + 1 - step) % world_size
        yield Send(right, chunk), Recv(left, (chunk - 1) % world_size)


def broken_ring(rank, world_size):
    """The second half starts one chunk too early, with one that is not complete."""
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        chunk = (rank - step) % world_size
        yield Send(right, chunk), RecvReduce(left, (chunk - 1) % world_size)
    for step in range(world_size - 1):
        chunk = (rank - step) % world_size
        yield Send(right, chunk), Recv(left, (chunk - 1) % world_size)
