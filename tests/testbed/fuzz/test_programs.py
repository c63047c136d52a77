from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from collectives.algorithms import ALGORITHMS
from testbed.errors import LaunchError
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


def test_a_campaign_goes_on_without_seeds_at_which_processes_die_and_ends_with_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deadly(function: Any, batches: Iterator[Any], *, lost: Any, **_: Any) -> Iterator[Any]:
        yield function(next(batches))
        yield lost(next(batches), "4 workers died at it")
        yield function(next(batches))
        raise LaunchError("the scheduler has gone")

    monkeypatch.setattr("testbed.fuzz.campaign.results", deadly)

    tally = explore(
        Programs(SHIPPED).judge_batch,
        range(100),
        batch_size=5,
        time_limit=None,
        workers=2,
        scheduler=None,
        watch=lambda tally: None,
    )

    assert tally.runs == 10
    assert tally.lost == ["seeds 5 to 9: 4 workers died at it", "seeds that were not tried"]
    assert tally.stopped == "the scheduler has gone"
