"""Memory of transports: nothing is kept of calls that are over, however many there were."""

from collections import Counter, deque

import pytest
import torch

from collectives import connect

pytestmark = pytest.mark.distributed

ALGORITHMS = ("ring", "recursive_doubling", "direct", "tree")
COUNTS = (1, 5_000, 300_000)
"""Elements of four bytes: in a slot of a mailbox; copied into the arena; more than it takes at once."""

CALLS = 25


def items_below(root):
    """Return how many items all collections hold that *root* reaches through our objects, by attribute."""
    found: Counter[str] = Counter()
    seen = set()
    waiting = [("", root)]
    while waiting:
        name, own = waiting.pop()
        if id(own) in seen:
            continue
        seen.add(id(own))
        if isinstance(own, dict | list | set | tuple | deque):
            found[name] += len(own)
            waiting += [(name, item) for item in (own.values() if isinstance(own, dict) else own)]
        elif type(own).__module__.startswith("collectives.") and not isinstance(own, type):
            slots = [slot for kind in type(own).__mro__ for slot in getattr(kind, "__slots__", ())]
            names = {*getattr(own, "__dict__", {}), *slots}
            waiting += [(f"{type(own).__name__}.{each}", getattr(own, each, None)) for each in sorted(names)]
    return found


def kept_after(rank, world_size, transport):
    """Return what has grown by as many items as there were calls of a size, by attribute."""
    grown = {}
    for algorithm in ALGORITHMS:
        communicator = connect(algorithm=algorithm, transport=transport, timeout=60)
        at = []
        for _ in range(2):
            for _ in range(CALLS):
                for count in COUNTS:
                    tensor = torch.ones(count)
                    communicator.all_reduce(tensor)
                    assert tensor[-1] == world_size
            communicator.barrier()
            at.append(items_below(communicator.launcher.transport))
        assert at[0], "nothing was looked at"
        more = {
            name: (at[0][name], number) for name, number in at[1].items() if number >= at[0][name] + CALLS
        }
        grown[algorithm] = more
    return grown


@pytest.mark.costly
@pytest.mark.parametrize("transport", [None, "shm"])
def test_nothing_is_kept_of_calls_that_are_over(transport, pool):
    for grown in pool.run(kept_after, 3, transport):
        assert grown == {algorithm: {} for algorithm in ALGORITHMS}
