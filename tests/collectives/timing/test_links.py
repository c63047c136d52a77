"""Bytes on each link, from program, sizes and routes; times it was full, from the rates."""

import json
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from collectives import (
    Job,
    NotSupportedError,
    Recv,
    RecvReduce,
    Run,
    Send,
    algorithm,
    simulate,
    simulate_jobs,
)
from collectives.algorithms import ALGORITHMS
from collectives.program.contracts import CONTRACTS
from collectives.timing import plan
from collectives.timing.links import Traffic
from sim import Background, Condition, Jitter, LinkChange, LinkFailure, Straggler, Topology, load_network
from sim.scenario import Scenario
from tests.given import switch
from tests.sim.networks import networks


def simulate_one(job: Job, topology: Topology, conditions: list[Condition], *, observe: bool = True) -> Run:
    return simulate(
        job.algorithm, nbytes=job.nbytes, topology=topology, placement=job.placement, itemsize=job.itemsize,
        conditions=conditions, observe=observe, engine="events",
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, Job, list[Condition]]:
    topology = draw(networks(max_ranks=16))
    places = draw(st.permutations(range(topology.num_ranks)))
    hosts = places[: draw(st.integers(1, len(places)))]
    chosen, itemsize = draw(st.sampled_from(ALGORITHMS)), draw(st.sampled_from([1, 4]))
    nbytes = itemsize * draw(st.integers(0, 10**6))
    if CONTRACTS[chosen.collective].equal_parts:
        nbytes -= nbytes % (len(hosts) * itemsize)
    slow = draw(st.dictionaries(st.sampled_from(places), st.sampled_from([1, 1.5, 3]), max_size=2))
    conditions = [Straggler(rank, factor) for rank, factor in slow.items()]
    if draw(st.booleans()) and topology.num_links:
        link = draw(st.integers(0, topology.num_links - 1))
        conditions.append(LinkChange(link, "1us", draw(st.sampled_from([0.25, 1, 2]))))
    if draw(st.booleans()):
        conditions.append(Jitter("1us"))
    return topology, Job(chosen, nbytes, placement=hosts, itemsize=itemsize), conditions


@given(cases())
def test_who_is_observed_does_what_others_do_and_links_carry_what_the_network_does(case):
    topology, job, conditions = case
    try:
        run, seen = (simulate_one(job, topology, conditions, observe=observe) for observe in (False, True))
    except NotSupportedError:
        reject()

    assert run.time_ps == seen.time_ps
    assert run.links.nbytes.tolist() == seen._observation.recorder.link_bytes.tolist()
    assert all(use.utilisation <= 1 + 1e-9 for use in seen.links)
    assert (seen.links.saturated_ps <= seen.time_ps).all()
    traffic = Traffic.of(plan(job, Scenario(topology)))
    assert traffic.num_messages == len(seen._observation.messages)
    with mock.patch("collectives.timing.rows.pattern.MAX_STACKED_OPERATIONS", 0):
        unmatched = replace(job, algorithm=replace(job.algorithm, array_form=False))
        again = Traffic.of(plan(unmatched, Scenario(topology)))
    assert again.link_bytes.tolist() == traffic.link_bytes.tolist()
    assert again.num_messages == traffic.num_messages


def leaf_spine(num_ranks: int, num_spines: int = 1) -> Topology:
    rates = {"bandwidth": "100Gbps", "uplink_bandwidth": "200Gbps", "latency": "2us"}
    return Topology.leaf_spine(num_ranks=num_ranks, hosts_per_leaf=4, num_spines=num_spines, **rates)


TREE = leaf_spine(num_ranks=16)


@pytest.mark.parametrize("options", [{"engine": "events"}, {"observe": True}, {}])
def test_the_bottleneck_of_a_tree_is_the_link_above_its_leaves(options):
    run = simulate("halving_doubling", nbytes=2**26, topology=TREE, **options)

    assert run.links.bottleneck == run.links[32]
    assert run.links[32].name == "leaf 0 to spine 0"
    use = run.links[0]
    assert (use.name, use.bandwidth, use.nbytes) == ("rank 0 up", 12_500_000_000, 2 * 2**26 * 15 // 16)
    assert use.utilisation == pytest.approx(use.nbytes / (use.bandwidth * run.seconds), rel=1e-15)
    assert (use.saturated_seconds is None) == (not options.get("observe"))
    assert len(run.links) == len(run.links.rows()) == TREE.num_links
    assert run.links.rows()[32]["name"] == "leaf 0 to spine 0"
    assert run.links[-1] == run.links[TREE.num_links - 1] == run.links[30:][-1]


def test_a_ring_saturates_each_link_for_as_long_as_its_bytes_take():
    run = simulate("ring", nbytes=10**8, topology=switch(4), observe=True)

    for use in run.links:
        assert use.saturated_seconds == pytest.approx(1.5 * 10**8 / 12.5e9, rel=1e-12)
        assert use.nbytes == 1.5 * 10**8


@algorithm(name="shifted")
def shifted(rank: int, world_size: int) -> Any:
    """Exchange between two ranks that do not send and receive in the same steps."""
    if rank == 0:
        yield Send(1, 0)
        yield RecvReduce(1, 1)
        yield Send(1, 1), Recv(1, 0)
    else:
        yield RecvReduce(0, 0), Send(0, 1)
        yield Send(0, 0)
        yield (Recv(0, 1),)


def test_programs_that_do_not_match_by_rows_are_counted_too():
    run = simulate(shifted, nbytes=1001, topology=switch(2))

    assert run.links.nbytes.tolist() == [1001, 1001, 1001, 1001]


def test_jobs_count_their_own_bytes_and_share_what_saturates():
    job = Job("ring", nbytes=10**8)

    alone = simulate("ring", nbytes=10**8, topology=switch(4), observe=True)
    both = simulate_jobs([job, job], topology=switch(4), observe=True)

    for run in both:
        assert np.array_equal(run.links.nbytes, alone.links.nbytes)
        assert run.links[0].saturated_seconds == pytest.approx(2 * alone.links[0].saturated_seconds, rel=1e-9)


@pytest.mark.parametrize("options", [{"model": "nccl"}, {"algorithm": "nvls"}])
def test_a_closed_form_says_nothing_of_links(options):
    run = simulate(
        **{"algorithm": "ring", "nbytes": 2**20, "topology": load_network("dgx-h100").topology(8)} | options
    )

    with pytest.raises(NotSupportedError, match="closed form, which says nothing of single links"):
        _ = run.links


SPINES = leaf_spine(num_ranks=8, num_spines=2)


def test_a_slow_rank_is_the_bottleneck_by_links_of_its_own():
    run = simulate(
        "ring", nbytes=2**26, topology=switch(8), conditions=[Straggler(3, factor=2)], observe=True
    )

    bottleneck = run.links.bottleneck
    assert (bottleneck.name, bottleneck.bandwidth) == ("rank 3 slow up", 6_250_000_000)
    assert [use.nbytes for use in run.links] == [14 * 2**23] * 18
    assert run.links.bottleneck == run.links[16]


def test_messages_that_find_another_way_count_where_they_passed():
    job = Job("ring", 2**26)
    failure = LinkFailure("leaf 0 to spine 0", "1ms", reroute=True)

    usual, run = simulate_one(job, SPINES, []), simulate_one(job, SPINES, [failure])

    up = [link for link in range(SPINES.num_links) if SPINES.link_name(link).startswith("leaf 0 to")]
    before, after = usual.links.nbytes[up], run.links.nbytes[up]
    assert before.tolist() == [14 * 2**23, 0]
    assert 0 < after[0] < before[0]
    assert 0 <= before.sum() - after.sum() <= 1  # a message that had left a part of a byte behind
    assert "links" not in json.loads(run.trace.to_json())["traceEvents"][-1].get("args", {})


@pytest.mark.parametrize(
    "conditions", [[], [Background(0, 5, bandwidth="10Gbps")]], ids=["not observed", "other traffic"]
)
def test_where_messages_passed_is_not_guessed(conditions):
    failure = LinkFailure("leaf 0 to spine 0", "1ms", reroute=True)

    run = simulate_one(Job("ring", 2**26), SPINES, [failure, *conditions], observe=bool(conditions))

    with pytest.raises(NotSupportedError, match="changed their way on leaf_spine; take"):
        _ = run.links
