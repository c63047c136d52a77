"""In virtual time a rank that does wrong is named at once, with what every rank was doing."""

import re
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import DeadlockError, RankError
from tests.collectives.virtual.clusters import in_group, rank_thread


class OwnError(Exception):
    pass


@dataclass(frozen=True)
class Scenario:
    """Before or instead of its call number ``call``, rank ``culprit`` of ``world_size`` does wrong."""

    fault: str
    world_size: int
    culprit: int
    call: int
    async_op: bool
    algorithm: str


def scenarios(*faults: str, min_size: int = 2) -> st.SearchStrategy[Scenario]:
    def of(world_size: int) -> st.SearchStrategy[Scenario]:
        return st.builds(
            Scenario, st.sampled_from(faults), st.just(world_size), st.integers(0, world_size - 1),
            st.integers(0, 4), st.booleans(), st.sampled_from(["ring", "tree", "direct"]),
        )  # fmt: skip

    return st.integers(min_size, 6).flatmap(of)


def failed(scenario: Scenario, error: type[Exception]) -> Exception:
    """Return how a run of the scenario's ranks in virtual time fails."""
    with pytest.raises(error) as caught:
        in_group(lambda rank: make_calls(scenario, rank), scenario.world_size, algorithm=scenario.algorithm)
    return caught.value


def make_calls(scenario: Scenario, rank: int) -> None:
    """Make six calls, each checked as soon as it is complete; the culprit does what the scenario says."""
    for number in range(6):
        fault = scenario.fault if (rank, number) == (scenario.culprit, scenario.call) else ""
        rank_thread().charge_ps(1000 * (rank + 1))
        if fault == "returns":
            return
        if fault == "raises":
            raise OwnError
        dtype = torch.float64 if fault == "dtype" else torch.float32
        tensor = torch.full((40 + (fault == "size"),), rank + 1, dtype=dtype)
        if scenario.fault == "root" or fault == "collective":
            root = int(fault == "root")
            work = dist.broadcast(tensor, root, async_op=scenario.async_op)
            expected = root + 1
        else:
            op = dist.ReduceOp.MAX if fault == "op" else dist.ReduceOp.SUM
            work = dist.all_reduce(tensor, op, async_op=scenario.async_op)
            expected = sum(range(scenario.world_size + 1))
        if scenario.async_op:
            work.wait()
        assert (tensor == expected).all()


@pytest.mark.costly
@settings(max_examples=40)
@given(scenario=scenarios("collective", "size", "dtype", "op", "root", min_size=3))
def test_a_rank_that_calls_another_is_named_with_both_calls(scenario):
    _, *states, verdict = str(failed(scenario, DeadlockError)).splitlines()

    assert [state.strip()[:7] for state in states[: scenario.world_size]] == [
        f"rank {rank}:" for rank in range(scenario.world_size)
    ]
    assert f": rank {scenario.culprit} called something else: " in verdict
    assert len(re.findall(rf"(?:all_reduce|broadcast) #{scenario.call} \(", verdict)) == 3


@settings(max_examples=20)
@given(scenario=scenarios("returns"))
def test_a_rank_that_ends_early_is_named_with_the_collective_of_the_others(scenario):
    *states, verdict = str(failed(scenario, DeadlockError)).splitlines()[1:]

    assert f"rank {scenario.culprit}: has finished" in states[scenario.culprit]
    assert re.search(
        rf"all_reduce #{scenario.call} \(.*\): rank {scenario.culprit} did not take part", verdict
    )


@pytest.mark.costly
@settings(max_examples=20)
@given(scenario=scenarios("raises"))
def test_a_rank_that_raises_ends_the_run_with_its_error_and_what_the_others_did(scenario):
    error = failed(scenario, RankError)

    (note,) = error.__notes__
    others = [rank for rank in range(scenario.world_size) if rank != scenario.culprit]
    states = note.splitlines()[: len(others)]
    assert f"rank {scenario.culprit} raised OwnError" in str(error)
    assert [line.partition(":")[0] for line in states] == [f"rank {rank}" for rank in others]
