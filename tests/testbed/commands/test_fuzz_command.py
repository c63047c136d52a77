"""`testbed fuzz`, as users call it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.commands.fuzz import _programs
from testbed.errors import Terminated
from testbed.fuzzing.draw import Draw, Space
from testbed.fuzzing.scripts import judge
from tests.commands import called, reported
from tests.testbed.fuzzing.first_come import FIRST_COME


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(FIRST_COME)
    return path


@pytest.mark.costly
def test_a_violation_ends_with_1_and_its_seed_repeats_it(script: Path) -> None:
    found = reported(f"fuzz {script} --ranks 3 --workers 1 --faults none --seed 8", code=1)

    (violation,) = found["violations"]
    again = judge(Draw.from_json(violation["draw"]), Space(str(script), ranks=(3,), faults=()))
    assert found["runs"] == 1
    assert json.loads(json.dumps(again.to_json())) == violation
    assert f"def test_seed_{violation['draw']['seed']}" in found["smallest"]["test"]


def test_programs_are_counted_by_how_they_end() -> None:
    printed = called("fuzz ring,tree --seeds 30 --workers 1").stdout

    assert "30 runs of ring,tree" in printed
    assert printed.endswith("0 violations\n")


@pytest.mark.parametrize("what", ["ring", "all", "train.py"])
def test_a_campaign_that_ran_nothing_ends_with_1(
    what: str, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    nothing = f"fuzz {what} --time-limit 0s --workers 1"

    printed = called(nothing, code=1).stdout

    assert printed.endswith("Stopped: the time limit of 0 s was reached.\nNothing was checked.\n")
    assert reported(nothing, code=1)["checked"] == 0


def test_a_campaign_whose_runs_were_all_declined_ends_with_1(script: Path) -> None:
    script.write_text("raise SystemExit('an even number of ranks')")

    printed = called(f"fuzz {script} --seeds 2 --workers 1", code=1).stdout

    assert "2 declined by the script" in printed
    assert printed.endswith("Nothing was checked.\n")


@pytest.mark.parametrize(("signalled", "expected"), [(KeyboardInterrupt, 130), (Terminated, 130)])
@pytest.mark.parametrize("num_batches", [0, 1])
def test_a_campaign_that_was_interrupted_reports_what_there_is_and_ends_with_the_code_of_the_signal(
    num_batches: int,
    signalled: type[KeyboardInterrupt],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(function: Any, batches: Iterator[Any], **_: Any) -> Iterator[Any]:
        yield from (function(next(batches)) for _ in range(num_batches))
        raise signalled

    monkeypatch.setattr("testbed.fuzzing.campaign.results", interrupted)

    printed = called("fuzz ring --seeds 16", code=expected).stdout

    assert printed.startswith(f"{2 * num_batches} runs of ring")
    assert "Stopped: interrupted." in printed


def test_a_program_in_a_file_is_found_again_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def own(rank, world_size):\n    yield ()\n")

    first, *others = _programs(f"{path}:own,chain:segments=2")

    assert first == (f"{path}:own", "all_reduce")
    assert set(others) == {("chain:segments=2", own) for own in ("all_reduce", "broadcast", "reduce")}
