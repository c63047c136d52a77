"""Faults of one rank: the others are told by whom, in which collective and in time."""

import re

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.distributed.faults import (
    ABSENCES,
    MISMATCHES,
    TIMEOUT,
    Account,
    Scenario,
    call_late,
    go_through,
    lose_the_store,
    poll_in_vain,
)
from tests.distributed.pool import Failure

pytestmark = pytest.mark.distributed

NUM_SCENARIOS = 1
"""How many scenarios are drawn for each test; raise it to search for longer."""

MARGIN = 30.0
"""Seconds after which an error that is late is taken for one that does not come, on a busy machine, too."""

PROGRAMS = ("ring", "tree", "ring, shm", "ring, two hosts", "testbed")


def drawn(num_scenarios):
    """Return settings for *num_scenarios* random scenarios; one that fails is shown as it was drawn."""
    return settings(
        max_examples=num_scenarios * NUM_SCENARIOS,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def scenarios(fault, ways):
    return st.builds(
        Scenario,
        fault=st.just(fault),
        way=st.sampled_from(ways),
        culprit=st.integers(0, 3),
        call=st.integers(0, 8),
        delay=st.floats(0, 0.3),
        seed=st.integers(0, 2**32),
    )


def accounts_of(pool, scenario):
    outcomes = pool.run_outcomes(go_through, 4, scenario)
    for outcome in outcomes:
        note(str(outcome))
    return outcomes


def check_survivor(account, scenario, verdict):
    """Check that this rank was told, in time, what the *verdict* says of the culprit, and what all did."""
    assert isinstance(account, Account)
    first, *lines = account.error.splitlines()
    assert re.match(r"(CollectiveTimeoutError|MismatchError): rank \d: (all_reduce|broadcast) #\d+ \(", first)
    assert f"; rank {scenario.culprit} {verdict}" in first
    assert [line[:9] for line in lines] == [f"  rank {rank}:" for rank in range(4)]
    assert all(re.search(r"(in \w+ #\d+ \(.*\), \w)|no report", line) for line in lines)
    assert account.wrong == 0
    assert account.seconds < TIMEOUT + MARGIN
    assert "an earlier collective of this group has failed" in account.next_error
    assert account.next_seconds < MARGIN


@pytest.mark.slow
@drawn(3)
@given(scenario=scenarios("killed", (*PROGRAMS, "native", "native, checked")))
def test_survivors_name_a_rank_that_is_killed_at_any_moment(pool, scenario):
    accounts = accounts_of(pool, scenario)

    died = accounts.pop(scenario.culprit)
    assert isinstance(died, Failure)
    assert died.kind == "died"
    for account in accounts:
        check_survivor(account, scenario, "did not take part")


@pytest.mark.slow
@drawn(2)
@given(scenario=scenarios("stalled", (*PROGRAMS, "native")))
def test_a_rank_that_stalls_is_named_and_fails_itself_when_it_goes_on(pool, scenario):
    accounts = accounts_of(pool, scenario)

    stalled = accounts.pop(scenario.culprit)
    assert f"; rank {scenario.culprit} did not take part" in stalled.error
    assert stalled.wrong == 0
    for account in accounts:
        check_survivor(account, scenario, "did not take part")


@pytest.mark.parametrize("fault", MISMATCHES)
def test_every_rank_names_the_rank_that_calls_another(pool, fault):
    ways = PROGRAMS[:4] if fault == "algorithm" else (*PROGRAMS, "native, checked")

    @drawn(1)
    @given(scenario=scenarios(fault, ways))
    def check(scenario):
        for account in accounts_of(pool, scenario):
            check_survivor(account, scenario, "called something else")
            assert account.error.startswith("MismatchError")

    check()


@pytest.mark.parametrize("fault", ABSENCES)
def test_the_others_name_a_rank_that_does_not_call(pool, fault):
    @drawn(1)
    @given(scenario=scenarios(fault, (*PROGRAMS, "native")))
    def check(scenario):
        accounts = accounts_of(pool, scenario)

        absent = accounts.pop(scenario.culprit)
        assert isinstance(absent, Failure) == (fault == "raises")
        for account in accounts:
            check_survivor(account, scenario, "did not take part")

    check()


@pytest.mark.costly
@pytest.mark.parametrize(("fault", "way"), [("killed", "ring"), ("stalled", "native")])
def test_where_rank_0_takes_the_store_with_it_the_others_say_so_in_time(pool, fault, way):
    scenario = Scenario(fault, way, culprit=0, call=0, delay=0.1, seed=0)

    _, *accounts = pool.run_outcomes(lose_the_store, 4, scenario)

    for account in accounts:
        assert isinstance(account, Account)
        assert re.match(r"CollectiveTimeoutError: rank \d: all_reduce #\d+ \(", account.error)
        assert "the group's store" in account.error
        assert "the process that hosts it was killed or is stalled" in account.error
        assert "that is rank 0, unless a launcher hosts the store" in account.error
        assert account.wrong == 0
        assert account.seconds < TIMEOUT + MARGIN
        assert "an earlier collective of this group has failed" in account.next_error


def test_a_rank_that_calls_late_learns_with_the_others_and_is_not_blamed(pool):
    for rank, error in enumerate(pool.run(call_late, 4)):
        assert rank == 1 or "; rank 1 did not take part" in error


@pytest.mark.parametrize("way", ["ring", "testbed"])
def test_asking_in_vain_whether_a_collective_is_complete_ends_with_the_time_out(pool, way):
    error, _ = pool.run(poll_in_vain, 2, way)

    assert "; rank 1 did not take part" in error
