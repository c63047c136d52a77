"""Waits for callbacks that hooks have left in Gloo's threads.

A callback that chains collectives holds the group.  If the group is destroyed while one of Gloo's threads
still lets go of its callback, that thread is the last to hold the group, joins itself, and the process
ends ("Resource deadlock avoided"); the next test then waits for it in vain.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator

import torch.distributed as dist

from tests.waiting import until


@contextlib.contextmanager
def callbacks_gone() -> Iterator[None]:
    """Go on when Gloo's threads have let go of the group: it must not be one of them that destroys it."""
    group = dist.group.WORLD
    before = sys.getrefcount(group)
    yield

    def let_go():
        gc.collect()
        return sys.getrefcount(group) <= before

    until(let_go, "Gloo's threads to let go of the group", seconds=45)
