"""Estimated and measured times."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import (
    NotExactError,
    NotSupportedError,
    UnknownAlgorithmError,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.timing.cost import MAX_MESSAGES, Cheapest, linear_cost
from collectives.timing.formulas.measured import measured_on
from collectives.timing.rows.repeated_rows import kept_rows
from sim import Jitter, Topology, load_network
from sim.measured import Line, MeasuredCurve
from sim.scenario.rank_overhead import RankOverhead
from tests.given import nodes, switch

TOPOLOGIES = st.builds(
    lambda build, ranks, bandwidth, latency: build(
        num_ranks=ranks, bandwidth=bandwidth * 10**9, latency=latency * 1e-6
    ),
    st.sampled_from([Topology.switch, Topology.ring]),
    st.integers(2, 12),
    st.integers(1, 50),
    st.integers(0, 20),
)

IN_STEP = ["ring", "halving_doubling", "naive", "tree"]
"""Algorithms that keep ranks in step on a switch, so that the estimate is the simulated time."""


@given(
    name=st.sampled_from(IN_STEP),
    exponent=st.integers(1, 3),
    bandwidth=st.integers(1, 50),
    latency=st.integers(0, 20),
    chunk=st.integers(1, 10**6),
)
def test_where_ranks_keep_in_step_the_estimate_is_the_simulated_time(
    name, exponent, bandwidth, latency, chunk
):
    ranks = 2**exponent
    topology = Topology.switch(num_ranks=ranks, bandwidth=bandwidth * 10**9, latency=latency * 1e-6)
    nbytes = ranks * chunk

    estimate = linear_cost(resolve_algorithm(name), topology).seconds(nbytes)

    exact = simulate(name, nbytes=nbytes, topology=topology).seconds  # each of up to 14 steps rounded up

    assert estimate == pytest.approx(exact, rel=1e-6, abs=1.5e-11)


@pytest.mark.slow
@given(
    topology=TOPOLOGIES, log_size=st.integers(8, 26), collective=st.sampled_from(["all_reduce", "all_gather"])
)
def test_the_cheapest_is_seldom_far_from_the_fastest(topology, log_size, collective):
    nbytes = 2**log_size
    cheapest = Cheapest(topology)
    chosen = cheapest.select(collective, nbytes)
    times = {
        algorithm.name: simulate(algorithm, nbytes=nbytes, topology=topology).time_ps
        for _, algorithm in cheapest.costs(collective)
    }

    assert times[chosen.name] <= 2 * min(times.values())


@given(
    topology=TOPOLOGIES,
    sizes=st.lists(st.integers(0, 28).map(lambda doublings: 2**doublings), min_size=1, max_size=3),
    collective=st.sampled_from(["all_reduce", "all_gather", "broadcast"]),
    kept=st.sampled_from([0, 16]),
)
@settings(max_examples=20, deadline=None)
def test_the_least_of_those_reckoned_in_part_is_the_first_of_the_least_of_all(
    topology, sizes, collective, kept
):
    lazy = Cheapest(topology)
    whole = Cheapest(topology).costs(collective)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collectives.timing.cost.MAX_KEPT_RANKS", kept)
        chosen = [str(lazy.select(collective, nbytes)) for nbytes in sizes]

    for nbytes, own in zip(sizes, chosen, strict=True):
        least = min(cost.seconds(nbytes) for cost, _ in whole)
        expected = next(other for cost, other in whole if cost.seconds(nbytes) <= least * (1 + 1e-9))
        assert own == str(expected)
    assert [(cost, str(own)) for cost, own in lazy.costs(collective)] == [(c, str(o)) for c, o in whole]


def test_reducing_costs_what_the_busiest_rank_reduces():
    topology = switch(4)
    ring = resolve_algorithm("ring")
    free, slow = (
        linear_cost(ring, topology, rank_overhead=RankOverhead.of(reduction_bandwidth=gamma))
        for gamma in (None, 10**9)
    )

    assert (slow.per_byte - free.per_byte) * 10**9 == pytest.approx(3 / 4)
    assert slow.latency == free.latency == 6 * 4e-6


def test_an_algorithm_that_sends_too_many_messages_is_not_worked_out(monkeypatch):
    monkeypatch.setattr("collectives.timing.cost.MAX_MESSAGES", 100)
    topology = switch(16)

    with pytest.raises(NotExactError, match="direct sends more than 100 messages among 16 ranks"):
        linear_cost(resolve_algorithm("direct"), topology)
    assert "direct" not in {chosen.name for _, chosen in Cheapest(topology).costs("all_reduce")}


def test_a_name_is_wanted_where_one_algorithm_is_meant():
    with pytest.raises(UnknownAlgorithmError, match="auto is a choice among algorithms by size"):
        verify("auto", 4)


US = 10**6

TWO = MeasuredCurve(
    "all_reduce", 2, 8, (Line(20 * US, 10**9), Line(100 * US, 10**11)), (1024, 2**26), (), 0.1, 0.05
)

FOUR = replace(TWO, num_nodes=4, lines=(Line(30 * US, 10**9), Line(130 * US, 80 * 10**9)))


def topology(*curves, num_nodes=2):
    own = nodes(num_nodes, 8, 8, intra_latency=0, nic_bandwidth="25GB/s", nic_latency=0)
    return replace(own, measured=curves)


def test_the_least_line_gives_the_time():
    run = simulate("native", nbytes=2**26, topology=topology(TWO), model="measured")

    seconds = 100e-6 + 2**26 / 1e11
    assert run.seconds == pytest.approx(seconds, rel=1e-9)
    assert run.interval_seconds == (pytest.approx(seconds / 1.05), pytest.approx(seconds * 1.05))
    said = run.model, run.engine, run.algorithm, run.beyond
    assert said == ("measured", "closed form", "native/Simple", "")


def test_the_factor_runs_between_two_sizes():
    curve = replace(TWO, lines=(Line(100 * US, 10**15),), sizes=(1024, 4096), factors=(1.0, 2.0))

    found = measured_on(topology(curve), range(16), "all_reduce", 2048)

    assert found.seconds == pytest.approx(100e-6 * 2**0.5, rel=1e-6)


def test_beyond_the_sizes_measured_the_interval_is_twice_as_wide():
    found = measured_on(topology(TWO), range(16), "all_reduce", 2**30)

    assert found.high / found.seconds == pytest.approx(1.1)
    assert found.carried == "above 67108864 bytes, the most measured"


def test_node_counts_are_carried_on_in_the_logarithm():
    found = measured_on(topology(TWO, FOUR, num_nodes=16), range(128), "all_reduce", 1024)

    assert found.seconds == pytest.approx(50e-6 + 1024 / 1e9, rel=0.01)
    assert found.low == pytest.approx((30e-6 + 1024 / 1e9) / 1.2, rel=0.01)
    assert found.high == pytest.approx((90e-6 + 1024 / 1e9) * 1.2, rel=0.01)
    assert found.carried == "carried on from 2 × 8 and 4 × 8 ranks"


def test_between_two_counts_the_time_lies_between_theirs_and_beyond_two_nodes_it_is_a_rings():
    times = [
        measured_on(topology(TWO, FOUR, num_nodes=n), range(8 * n), "all_reduce", 4096).seconds
        for n in (2, 3, 4)
    ]
    beyond = measured_on(
        topology(replace(TWO, num_nodes=1), TWO, num_nodes=8), range(64), "all_reduce", 2**26
    )

    assert times == sorted(times)
    assert beyond.seconds > 2 * 63 / 64 * 2**26 / 200e9 + 100e-6


@pytest.mark.parametrize(
    ("curves", "arguments", "said"),
    [
        ((), {}, "its file holds none; make one that does with testbed calibrate"),
        ((TWO,), {"collective": "broadcast"}, "broadcast was measured on nothing.*there is all_reduce"),
        ((FOUR,), {}, "on 2 × 8 ranks follows from none.*measured on 4 × 8"),
        ((TWO,), {"placement": "round_robin"}, "one node after another"),
        ((TWO,), {"algorithm": "ring"}, "library's own algorithm, not of ring"),
        ((TWO,), {"overhead": "1us"}, "has the software in it"),
        ((TWO,), {"conditions": [Jitter("1us")]}, "knows no conditions"),
        ((replace(TWO, lines=(Line(1, 10**15),)),), {}, "less than the .* that its links allow"),
    ],
)
def test_what_does_not_follow_from_measurements_is_refused(curves, arguments, said):
    arguments = {"algorithm": "native", "nbytes": 2**20, "model": "measured", **arguments}

    with pytest.raises(NotSupportedError, match=re.compile(said, re.S)):
        simulate(topology=topology(*curves), **arguments)


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(["ethernet-10g", "ethernet-25g", "ethernet-100g"]),
    st.integers(8, 24),
    st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]),
    st.integers(2**23, 2**30),
)
def test_over_tcp_not_all_ranks_send_to_one_at_once(network, num_ranks, collective, nbytes):
    def flows_into_a_port(ideal):
        topology = load_network(network, ideal=ideal).topology(num_ranks)
        chosen = Cheapest(topology).select(collective, nbytes)
        return max(
            int(np.bincount(pattern.destination, minlength=1).max())
            for _, pattern in kept_rows(chosen, num_ranks, MAX_MESSAGES)
        )

    assert flows_into_a_port(ideal=False) < num_ranks - 1
    assert flows_into_a_port(ideal=True) == num_ranks - 1  # least latency, where sharing costs nothing
