"""Collectives on a cluster that is not as its topology says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import Job, NotExactError, simulate, simulate_jobs
from sim import (
    Background,
    Condition,
    ConditionError,
    Jitter,
    LinkChange,
    LinkFailedError,
    LinkFailure,
    Straggler,
    Topology,
)
from sim.units import transfer_ps
from tests.collectives.timing.test_links import shifted
from tests.given import switch

MIB = 2**20
LINKS: dict[str, Any] = {"bandwidth": "100Gbps", "latency": "2us"}
RATE = 12_500_000_000


def leaf_spine(num_spines: int = 3) -> Topology:
    return Topology.leaf_spine(
        num_ranks=16, hosts_per_leaf=4, num_spines=num_spines, uplink_bandwidth="100Gbps", **LINKS
    )


def ring_ps(
    *conditions: Condition, nbytes: int = 8 * MIB, topology: Topology | None = None, **options
) -> int:
    topology = topology or switch(8)
    return simulate("ring", nbytes=nbytes, topology=topology, conditions=conditions, **options).time_ps


STEP_PS = 4_000_000 + transfer_ps(MIB, RATE)


@pytest.mark.parametrize("engine", ["makespan", "events"])
@given(delay_us=st.integers(0, 10**6), rank=st.integers(0, 7))
def test_a_ring_on_a_switch_ends_as_much_later_as_its_last_rank_begins(engine, delay_us, rank):
    late = ring_ps(Straggler(rank, delay=f"{delay_us}us"), engine=engine)

    assert late == 14 * STEP_PS + delay_us * 10**6


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "direct"])
def test_conditions_that_change_nothing_change_nothing(name):
    tree = leaf_spine()
    usual = simulate(name, nbytes=MIB, topology=tree, engine="events")
    end = f"{usual.time_ps}ps"
    for condition in (
        Straggler(3, factor=1, delay=0),
        LinkChange("leaf 0 to spine 0", "1us", 1),
        LinkChange("rank 3 up", end, 0.01),
        LinkFailure("rank 3 up", end),
        LinkFailure("leaf 0 to spine 0", end, reroute=True),
        Background(0, 5, "1Gbps", start=end),
    ):
        run = simulate(name, nbytes=MIB, topology=tree, engine="events", conditions=[condition])
        assert (run.time_ps, run.floor_ps) == (usual.time_ps, usual.floor_ps)
        assert run.conditions == (str(condition),)
    assert usual.conditions == ()


def test_the_floor_counts_what_links_carry_at_best():
    changes = [LinkChange(link, *change) for link in range(16) for change in ((0, 10), ("1s", 2))]

    run = simulate("ring", nbytes=8 * MIB, topology=switch(8), conditions=changes)

    assert run.engine == "events"
    assert run.time_ps == 14 * (4_000_000 + transfer_ps(MIB, 10 * RATE))
    usual = simulate("ring", nbytes=8 * MIB, topology=switch(8))
    assert run.floor_seconds <= run.seconds < usual.floor_seconds


AT = f"{2 * STEP_PS + 5_000_000}ps"


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lambda: ring_ps(LinkFailure("rank 3 up", AT)),
         "lost at 180.8 us: all_reduce by ring, step 2: rank 3 sends 1048576 bytes to rank 4;"),
        (lambda: ring_ps(LinkFailure("rank 3 up", AT, reroute=True)), "rank 3 cut off from the other ranks$"),
        # What is posted after the failure, and programs that run rank by rank.
        (lambda: ring_ps(LinkFailure("rank 3 up", "1us"), Straggler(3, delay="1ms")),
         "lost at 1 ms: all_reduce by ring, step 0: rank 3 sends 1048576 bytes to rank 4"),
        (lambda: simulate(shifted, nbytes=1000, topology=switch(2), conditions=[LinkFailure("rank 0 up", 0)]),
         "all_reduce by shifted, step 0: rank 0 sends 500 bytes to rank 1;"),
    ],
)  # fmt: skip
def test_a_failed_link_is_named_with_the_collective_and_all_messages_that_were_lost(lose, said):
    with pytest.raises(LinkFailedError, match=said) as failed:
        lose()

    assert failed.value.links in [("rank 3 up",), ("rank 0 up",)]


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "direct", "tree"])
@pytest.mark.parametrize("at", ["0s", "20us", "90us"])
def test_with_another_way_a_collective_completes_no_earlier_than_without_a_failure(name, at):
    tree = leaf_spine()
    failed = [f"leaf 0 to spine {spine}" for spine in (0, 1)]
    less = tree.without_links([tree.link_number(link) for link in failed])

    run = simulate(
        name, nbytes=MIB, topology=tree, conditions=[LinkFailure(link, at, reroute=True) for link in failed]
    )

    assert run.time_ps >= simulate(name, nbytes=MIB, topology=tree, engine="events").time_ps
    if at == "0s":
        assert run.time_ps == simulate(name, nbytes=MIB, topology=less, engine="events").time_ps


def test_only_events_follow_what_happens_to_links():
    for condition in (LinkChange(0, 0, 2), LinkFailure(0, "1s"), Background(0, 1, 1)):
        with pytest.raises(NotExactError, match=type(condition).__name__):
            ring_ps(condition, engine="makespan")
        assert simulate("ring", nbytes=8, topology=switch(8), conditions=[condition]).engine == "events"
    slow = simulate("ring", nbytes=8, topology=switch(8), conditions=[Straggler(0, 2), Jitter("1us")])
    assert slow.engine == "makespan"


def test_ranks_in_conditions_are_places():
    order = [3, 1, 2, 0, 4, 5, 6, 7]
    reverse = [(rank + 1) % 8 for rank in range(8)]
    usual = ring_ps(Straggler(0, 3))

    assert ring_ps(Straggler(3, 3), placement=order) == usual
    assert ring_ps(Straggler(0, 3), placement=reverse[:7]) == ring_ps(placement=reverse[:7])
    with pytest.raises(ConditionError, match=r"places 0 to 7, got 8"):
        ring_ps(Straggler(8))


def test_conditions_hold_for_all_jobs_and_each_may_be_late():
    jobs = [
        Job("ring", 4 * MIB, placement=[0, 1, 2, 3]),
        Job("ring", 4 * MIB, placement=[7, 6, 5, 4], start="1ms"),
    ]
    alone = 6 * STEP_PS

    plain = simulate_jobs(jobs, topology=switch(8))
    late = simulate_jobs(jobs, topology=switch(8), conditions=[Straggler(5, delay="2us")])
    slow = simulate_jobs(jobs, topology=switch(8), conditions=[LinkChange("rank 2 up", "1ms", 0.5)])

    assert [run.time_ps for run in plain] == [alone, alone]
    assert [run.time_ps for run in late] == [alone, alone + 2 * 10**6]
    assert [run.time_ps for run in slow] == [alone, alone]
    assert late[0].conditions == ("Straggler(rank=5, factor=1, delay='2us')",)
    with pytest.raises(
        LinkFailedError, match=r"all_reduce by ring, step 0: rank 1 sends 1048576 bytes to rank 2;"
    ):
        simulate_jobs(jobs, topology=switch(8), conditions=[LinkFailure("rank 6 up", "1001us")])


def test_utilisation_is_of_what_a_link_could_carry_in_the_time_of_the_run():
    half = ring_ps(LinkChange("rank 3 up", 0, 0.5))
    change = LinkChange("rank 3 up", f"{half // 4}ps", 0.5)
    run = simulate("ring", nbytes=8 * MIB, topology=switch(8), conditions=[change], observe=True)
    usual = simulate("ring", nbytes=8 * MIB, topology=switch(8))

    assert [use.nbytes for use in run.links] == [use.nbytes for use in usual.links]
    for use in run.links:
        carries = RATE * run.time_ps
        if use.name == "rank 3 up":
            carries = RATE * half // 4 + RATE // 2 * (run.time_ps - half // 4)
        assert use.utilisation == pytest.approx(use.nbytes * 10**12 / carries)
        assert use.bandwidth == RATE
    assert run.links.bottleneck.name == "rank 3 up"
