from __future__ import annotations

from pathlib import Path

import pytest

from testbed.fuzz.campaign import Judged
from testbed.fuzz.draw import Draw, Space
from testbed.fuzz.faults import Fault
from testbed.fuzz.program_draw import ProgramSpace, draw_program
from testbed.fuzz.programs import judge_program
from testbed.fuzz.reproduction import MOST_LINES
from testbed.fuzz.scripts import judge, judge_smaller
from testbed.fuzz.shrinking import shrink, smaller_runs
from testbed.fuzz.subjects import Programs, Scripts, Shrunk
from tests.testbed.fuzz.first_come import FIRST_COME

TOO_EARLY = """
from collectives import Recv, Send

def forwards_late_to_one(rank, world_size):
    if rank == 0:
        for peer in range(1, world_size):
            yield Send(peer=peer, chunk=0),
    elif rank != 2:
        yield Recv(peer=0, chunk=0),

forwards_late_to_one.collective = "broadcast"
"""


def fails_when_run(shrunk: Shrunk) -> bool:
    assert shrunk.test.count("\n") <= MOST_LINES
    names: dict[str, object] = {}
    exec(shrunk.test, names)
    test = names[f"test_seed_{shrunk.judged.draw.seed}"]
    assert callable(test)
    with pytest.raises(AssertionError):
        test()
    return True


def test_a_run_that_is_a_violation_is_shrunk_to_a_test_that_fails(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FIRST_COME)
    space = Space(str(script), ranks=(3, 4))
    faults = Fault("jitter", 2, 0.0, 0.0, 0), Fault("slow", 1, 0.9, 0.0, 1)
    drawn = Draw(7, 4, "switch-100g", "tree", faults=faults)

    shrunk = Scripts(space).shrunk(judge(drawn, space))

    assert (shrunk.judged.draw.ranks, shrunk.judged.draw.algorithm) == (3, "ring")
    assert [fault.kind for fault in shrunk.judged.draw.faults] == ["slow"]
    assert fails_when_run(shrunk)


def test_numbers_among_the_arguments_of_a_script_are_made_smaller() -> None:
    def fails_from_its_third_step(drawn: Draw) -> Judged:
        argv = space.argv if drawn.argv is None else drawn.argv
        return Judged(drawn, {"wrong": "so"} if int(argv[1]) >= 3 else {}, "finished")

    space = Space("script.py", ("--steps", "40", "--width=64", "--rate", "0.1"), ranks=(2,))
    drawn = Draw(3, 2, "switch-100g", "ring")

    smallest = shrink(
        fails_from_its_third_step(drawn), lambda own: smaller_runs(own, space), fails_from_its_third_step
    )

    assert smallest.draw.argv == ("--steps", "3", "--width=1", "--rate", "0.1")
    assert Draw.from_json(smallest.draw.to_json()) == smallest.draw


def test_arguments_with_which_a_script_fails_by_itself_are_no_smaller_violation(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; assert int(sys.argv[1]) > 1")
    space = Space(str(script), ("8",), ranks=(1,))

    judged = judge_smaller(Draw(3, 1, "switch-100g", "ring", argv=("1",)), space)

    assert (judged.ended, judged.violations) == ("refused", {})


def test_a_wrong_program_is_shrunk_to_a_test_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TOO_EARLY)
    space = ProgramSpace(((f"{file}:forwards_late_to_one", "broadcast"),), ranks=(3, 4, 5))
    tried = (judge_program(draw_program(seed, space)) for seed in range(9))
    judged = next(judged for judged in tried if judged.violations)

    shrunk = Programs(space).shrunk(judged)

    assert (shrunk.judged.draw.ranks, shrunk.judged.draw.count, shrunk.judged.draw.faults) == (3, 1, ())
    assert fails_when_run(shrunk)


def test_a_violation_that_cannot_be_made_smaller_stays(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('no')")
    space = Space(str(script), ranks=(1,))
    drawn = Draw(3, 1, "switch-100g", "ring")

    shrunk = Scripts(space).shrunk(judge(drawn, space))

    assert isinstance(shrunk.judged, Judged)
    assert shrunk.judged.draw == drawn
    assert "ValueError: no" in shrunk.judged.violations["runs_without_faults"]
