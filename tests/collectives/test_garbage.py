import json
import subprocess
import sys
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

AT_FIRST, BESIDES = 2000, 200  # the latter at most: objects of a run besides the rings that it leaves

RUNS = """
import gc, json, sys
from collectives.garbage import OldObjects

class Ring:
    alive = 0

    def __init__(self):
        self.itself = self
        Ring.alive += 1

    def __del__(self):
        Ring.alive -= 1

gc.disable()
old_objects = OldObjects(may_be_left=int(sys.argv[1]))
for num_left in json.loads(sys.argv[2]):
    with old_objects.passed_over():
        print(json.dumps([Ring.alive, gc.get_freeze_count(), gc.get_stats()[2]["collections"]]))
        for _ in range(num_left):
            Ring()
"""

FROZEN_BY_OTHERS = """
import gc
from collectives.garbage import OldObjects

gc.freeze()
frozen = gc.get_freeze_count()
with OldObjects().passed_over():
    new = [[] for _ in range(100)]
print(frozen == gc.get_freeze_count())
"""


def said_by(program: str, *arguments: str) -> list[str]:
    """Return the lines that *program* prints in a process, and so with a garbage collector, of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@settings(max_examples=15)
@example([1500] * 40)
@example([0] * 40)
@given(st.lists(st.integers(0, 1500), min_size=2, max_size=40))
def test_garbage_of_runs_stays_below_half_of_what_is_kept_and_is_not_looked_for_in_each(nums_left):
    entries = [json.loads(line) for line in said_by(RUNS, str(AT_FIRST), json.dumps(nums_left))]

    allowances = [AT_FIRST]
    for (_, _, collections_before), (num_alive, num_kept, num_collections) in pairwise(entries):
        if num_collections > collections_before:
            allowances.append(num_kept // 2)
            assert num_alive == 0
        assert num_alive <= allowances[-1]
    assert sum(allowances[:-1]) <= sum(nums_left) + BESIDES * len(nums_left)


def test_what_others_have_frozen_stays_frozen():
    assert said_by(FROZEN_BY_OTHERS) == ["True"]
