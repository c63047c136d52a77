from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from testbed.fuzz.draw import Draw, Space, draw
from testbed.fuzz.values import without_times

SPACE = Space("train.py", ranks=(2, 3, 5))


@given(seed=st.integers(0, 2**63))
def test_a_seed_means_the_same_run_for_ever_and_survives_json(seed: int) -> None:
    drawn = draw(seed, SPACE)

    assert drawn == draw(seed, SPACE)
    assert Draw.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
    assert drawn.ranks in SPACE.ranks
    assert all(fault.rank < drawn.ranks for fault in drawn.faults)
    assert drawn.without_faults.only_time


def test_lines_are_compared_without_what_they_say_of_times() -> None:
    assert without_times("step 3: loss 0.5, 12.5 ms") == "step 3: loss 0.5, …"
    assert without_times("epoch 1 took 3.25") == without_times("epoch 1 took 4.5")
    assert without_times("loss 0.5") != without_times("loss 0.6")
