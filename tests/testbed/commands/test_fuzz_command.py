"""`testbed fuzz`, as users call it."""

import json

import pytest

from testbed.commands.fuzz import _programs
from testbed.errors import Terminated
from testbed.fuzzing.draw import Draw, Space
from testbed.fuzzing.scripts import judge
from tests.commands import called, reported
from tests.testbed.fuzzing.first_come import FIRST_COME


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FIRST_COME)
    return path


@pytest.mark.costly
def test_a_violation_ends_with_1_and_its_seed_repeats_it(script):
    found = reported(f"fuzz {script} --ranks 3 --workers 1 --faults none --seed 8", code=1)

    (violation,) = found["violations"]
    again = judge(Draw.from_json(violation["draw"]), Space(str(script), ranks=(3,), faults=()))
    assert found["runs"] == 1
    assert json.loads(json.dumps(again.to_json())) == violation
    assert f"def test_seed_{violation['draw']['seed']}" in found["smallest"]["test"]


def test_programs_are_counted_by_how_they_end():
    printed = called("fuzz ring,tree --seeds 30 --workers 1").stdout

    assert "30 runs of ring,tree" in printed
    assert printed.endswith("0 violations\n")


@pytest.mark.parametrize(
    ("campaign", "said"),
    [
        ("ring --time-limit 0s", "Stopped: the time limit of 0 s was reached.\n"),
        ("all --time-limit 0s", "Stopped: the time limit of 0 s was reached.\n"),
        ("train.py --time-limit 0s", "Stopped: the time limit of 0 s was reached.\n"),
        ("odd.py --seeds 2", "2 declined by the script"),
    ],
)
def test_a_campaign_that_ran_nothing_or_whose_runs_were_all_declined_ends_with_1(
    campaign, said, script, monkeypatch
):
    monkeypatch.chdir(script.parent)
    script.with_name("odd.py").write_text("raise SystemExit('an even number of ranks')")
    nothing = f"fuzz {campaign} --workers 1"

    printed = called(nothing, code=1).stdout

    assert said in printed
    assert printed.endswith("Nothing was checked.\n")
    assert reported(nothing, code=1)["checked"] == 0


@pytest.mark.parametrize("signalled", [KeyboardInterrupt, Terminated])
@pytest.mark.parametrize("num_batches", [0, 1])
def test_a_campaign_that_was_interrupted_reports_what_there_is(num_batches, signalled, monkeypatch):
    def interrupted(function, batches, **_):
        yield from (function(next(batches)) for _ in range(num_batches))
        raise signalled

    monkeypatch.setattr("testbed.fuzzing.campaign.results", interrupted)

    printed = called("fuzz ring --seeds 16", code=130).stdout

    assert printed.startswith(f"{2 * num_batches} runs of ring")
    assert "Stopped: interrupted." in printed


def test_a_program_in_a_file_is_found_again_by_its_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def own(rank, world_size):\n    yield ()\n")

    first, *others = _programs(f"{path}:own,chain:segments=2")

    assert first == (f"{path}:own", "all_reduce")
    assert set(others) == {("chain:segments=2", own) for own in ("all_reduce", "broadcast", "reduce")}
