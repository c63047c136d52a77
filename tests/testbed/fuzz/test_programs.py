from __future__ import annotations

import pytest

from collectives.algorithms import ALGORITHMS
from testbed.fuzz.campaign import Tally, explore
from testbed.fuzz.program_draw import ProgramDraw, ProgramSpace, draw_program
from testbed.fuzz.programs import judge_programs
from testbed.fuzz.subjects import Programs

SHIPPED = ProgramSpace(tuple((algorithm.name, algorithm.collective) for algorithm in ALGORITHMS))


@pytest.mark.parametrize("first", [0, 10**6])
def test_shipped_programs_keep_their_results_under_faults(first: int) -> None:
    batch = judge_programs(range(first, first + 100), SHIPPED)

    assert batch.violated == ()
    assert {"finished", "waits for the dead", "LinkFailedError"} <= set(batch.endings)


def test_a_seed_means_the_same_programs_for_ever_and_survives_json() -> None:
    for seed in range(50):
        drawn = draw_program(seed, SHIPPED)
        assert drawn == draw_program(seed, SHIPPED) == ProgramDraw.from_json(drawn.to_json())


def test_a_campaign_ends_when_time_is_up_and_says_so() -> None:
    seen: list[int] = []

    def watch(tally: Tally) -> None:
        seen.append(tally.runs)

    tally = explore(
        Programs(SHIPPED).judge_batch,
        range(10**6),
        batch_size=5,
        time_limit=0.05,
        workers=1,
        scheduler=None,
        watch=watch,
    )

    assert seen[0] == 5
    assert tally.runs == seen[-1] < 10**6
    assert "time limit" in tally.stopped
