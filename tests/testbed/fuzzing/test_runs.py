"""Runs of a fuzzer: what a seed draws, how a run is judged, and how a violation is made smaller."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.algorithms import ALGORITHMS
from testbed.errors import LaunchError
from testbed.fuzzing.campaign import Judged, explore
from testbed.fuzzing.draw import Draw, ProgramDraw, ProgramSpace, Space, draw, draw_program
from testbed.fuzzing.faults import FAULTS, Fault
from testbed.fuzzing.programs import Programs, judge_program
from testbed.fuzzing.scripts import Scripts, judge, judge_smaller
from testbed.fuzzing.shrinking import MOST_LINES, shrink, smaller_runs
from testbed.fuzzing.values import without_times
from tests.testbed.fuzzing.first_come import FIRST_COME

SPACE = Space("train.py", ranks=(2, 3, 5))
SHIPPED = ProgramSpace(tuple((algorithm.name, algorithm.collective) for algorithm in ALGORITHMS))


@given(seed=st.integers(0, 2**63))
def test_a_seed_means_the_same_run_for_ever_and_survives_json(seed):
    drawn = draw(seed, SPACE)

    assert drawn == draw(seed, SPACE)
    assert Draw.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
    assert drawn.ranks in SPACE.ranks
    assert all(fault.rank < drawn.ranks for fault in drawn.faults)
    assert drawn.without_faults.only_time
    program = draw_program(seed, SHIPPED)
    assert program == draw_program(seed, SHIPPED) == ProgramDraw.from_json(program.to_json())


def test_lines_are_compared_without_what_they_say_of_times():
    assert without_times("step 3: loss 0.5, 12.5 ms") == "step 3: loss 0.5, …"
    assert without_times("epoch 1 took 3.25") == without_times("epoch 1 took 4.5")
    assert without_times("loss 0.5") != without_times("loss 0.6")


SUM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([1.0 + dist.get_rank()])
for _ in range(3):
    dist.all_reduce(total)
print(total)
"""


@pytest.fixture
def space(tmp_path):
    """Return the runs of a script with such a text."""

    def space_of(text, *arguments, **fields):
        script = tmp_path / "script.py"
        script.write_text(text)
        return Space(str(script), arguments, **fields)

    return space_of


def test_a_result_that_depends_on_which_message_comes_first_is_a_violation(space):
    own = space(FIRST_COME)
    late = Draw(1, 3, "switch-100g", "ring", faults=(Fault("slow", 1, 0.9, 0.5, 1),))

    judged = judge(late, own)

    assert "rank 0 printed '[2, 1]', without faults '[1, 2]'" in judged.violations["time_changes_no_results"]
    assert not judge(late.without_faults, own).violations


@pytest.mark.parametrize("kind", FAULTS)
def test_no_fault_makes_a_right_script_a_violation(kind, space):
    drawn = Draw(1, 3, "switch-100g", "ring", order=1, faults=(Fault(kind, 1, 0.4, 0.3, 1),))

    assert not judge(drawn, space(SUM)).violations


@pytest.mark.parametrize("first", [0, 10**6])
def test_shipped_programs_keep_their_results_under_faults(first):
    batch = Programs(SHIPPED).judge_batch(range(first, first + 100))

    assert batch.violated == []
    assert {"finished", "waits for the dead", "LinkFailedError"} <= set(batch.endings)


def explored(num_seeds, watch=lambda tally: None, **how):
    usual = {"batch_size": 5, "time_limit": None, "workers": 1, "scheduler": None}
    return explore(Programs(SHIPPED).judge_batch, range(num_seeds), watch=watch, **{**usual, **how})


def test_a_campaign_ends_when_time_is_up_and_says_so():
    seen = []

    tally = explored(10**6, lambda tally: seen.append(tally.runs), time_limit=0.05)

    assert seen[0] == 5
    assert tally.runs == seen[-1] < 10**6
    assert "time limit" in tally.stopped


def test_a_campaign_goes_on_without_seeds_at_which_processes_die_and_ends_with_its_cluster(
    monkeypatch,
):
    def deadly(function, batches, *, lost, **_):
        yield function(next(batches))
        yield lost(next(batches), "4 workers died at it")
        yield function(next(batches))
        raise LaunchError("the scheduler has gone")

    monkeypatch.setattr("testbed.fuzzing.campaign.results", deadly)

    tally = explored(100, workers=2)

    assert tally.runs == 10
    assert tally.lost == ["seeds 5 to 9: 4 workers died at it", "seeds that were not tried"]
    assert tally.stopped == "the scheduler has gone"


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


def fails_when_run(shrunk):
    assert shrunk.test.count("\n") <= MOST_LINES
    names = {}
    exec(shrunk.test, names)
    test = names[f"test_seed_{shrunk.draw.seed}"]
    assert callable(test)
    with pytest.raises(AssertionError):
        test()
    return True


def test_a_run_that_is_a_violation_is_shrunk_to_a_test_that_fails(space):
    own = space(FIRST_COME, ranks=(3, 4))
    faults = Fault("jitter", 2, 0.0, 0.0, 0), Fault("slow", 1, 0.9, 0.0, 1)
    drawn = Draw(7, 4, "switch-100g", "tree", faults=faults)

    shrunk = Scripts(own).shrunk(judge(drawn, own))

    assert (shrunk.draw.ranks, shrunk.draw.algorithm) == (3, "ring")
    assert [fault.kind for fault in shrunk.draw.faults] == ["slow"]
    assert fails_when_run(shrunk)


def test_numbers_among_the_arguments_of_a_script_are_made_smaller():
    def fails_from_its_third_step(drawn):
        argv = space.argv if drawn.argv is None else drawn.argv
        return Judged(drawn, {"wrong": "so"} if int(argv[1]) >= 3 else {}, "finished")

    space = Space("script.py", ("--steps", "40", "--width=64", "--rate", "0.1"), ranks=(2,))
    drawn = Draw(3, 2, "switch-100g", "ring")

    smallest = shrink(
        fails_from_its_third_step(drawn), lambda own: smaller_runs(own, space), fails_from_its_third_step
    )

    assert smallest.draw.argv == ("--steps", "3", "--width=1", "--rate", "0.1")
    assert Draw.from_json(smallest.draw.to_json()) == smallest.draw


def test_arguments_with_which_a_script_fails_by_itself_are_no_smaller_violation(space):
    own = space("import sys; assert int(sys.argv[1]) > 1", "8", ranks=(1,))

    judged = judge_smaller(Draw(3, 1, "switch-100g", "ring", argv=("1",)), own)

    assert (judged.ended, judged.violations) == ("refused", {})


def test_a_wrong_program_is_shrunk_to_a_test_that_fails(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(TOO_EARLY)
    space = ProgramSpace(((f"{file}:forwards_late_to_one", "broadcast"),), ranks=(3, 4, 5))
    tried = (judge_program(draw_program(seed, space)) for seed in range(9))
    judged = next(judged for judged in tried if judged.violations)

    shrunk = Programs(space).shrunk(judged)

    assert (shrunk.draw.ranks, shrunk.draw.count, shrunk.draw.faults) == (3, 1, ())
    assert fails_when_run(shrunk)
