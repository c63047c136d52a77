"""Conditions: the topologies that they make of one, and what is refused."""

from fractions import Fraction

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim import (
    Background,
    ConditionError,
    Jitter,
    LinkChange,
    LinkFailure,
    Straggler,
    UnitError,
)
from sim.scenario import Scenario
from sim.units import transfer_ps
from tests.given import switch
from tests.sim.networks import detours, networks, pairs_of


@st.composite
def slowed(draw: st.DrawFn) -> Scenario:
    topology = draw(networks() | detours())
    ranks = draw(st.sets(st.integers(0, topology.num_ranks - 1), max_size=3))
    return Scenario.of(topology, [Straggler(rank, draw(st.fractions(1, 9))) for rank in sorted(ranks)])


@given(slowed())
def test_routes_of_slow_ranks_have_private_links_at_their_ends_and_are_paths(scenario):
    base, slow, factors = scenario.base, scenario.topology, scenario.factors
    wiring = slow.routing.wiring()
    assert len(wiring.tail) == len(wiring.head) == slow.num_links
    joined = set(map(tuple, wiring.joins.tolist()))
    pairs = pairs_of(base)
    for source, destination in pairs:
        usual, route = base.route(source, destination), slow.route(source, destination)
        private = [link for link in route if link >= base.num_links]
        assert tuple(link for link in route if link < base.num_links) == usual
        assert len(private) == (source in factors) + (destination in factors)
        at = source
        for link in route:
            assert at == wiring.tail[link] or (at, wiring.tail[link]) in joined
            at = int(wiring.head[link])
        assert at == destination or (at, destination) in joined
        if source in factors:
            assert route[0] == private[0]
            rate = Fraction(int(base.link_bandwidth[usual[0]])) / factors[source]
            assert slow.link_bandwidth[route[0]] == max(1, rate.numerator // rate.denominator)
    if pairs:
        table = slow.routes(*zip(*pairs, strict=True))
        assert [tuple(row[row >= 0].tolist()) for row in table] == [slow.route(*pair) for pair in pairs]
    names = [slow.link_name(link) for link in range(base.num_links, slow.num_links)]
    assert all(" slow " in name for name in names)
    assert (slow.digest() == base.digest()) == (not factors)


def test_a_change_of_a_link_changes_what_slow_ranks_get_of_it():
    scenario = Scenario.of(switch(4, 10**9, "1us"), [Straggler(3, 2), LinkChange("rank 3 up", 0, 0.5)])
    network = scenario.network(simpy.Environment(initial_time=0))

    arrival = network.transfer(3, 0, 10**6)
    network.env.run(arrival)

    assert network.env.now == 2 * 10**6 + transfer_ps(10**6, 250_000_000)


def test_without_slow_ranks_the_topology_is_the_same_one():
    topology = switch(4, 10**9, "1us")

    assert Scenario.of(topology, [Straggler(1, 1, "1s"), Jitter("1us")]).topology is topology


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: [Straggler(4, 2)], r"Straggler\(rank=4, .*\): .* places 0 to 3, got 4"),
        (lambda: [Straggler("3", 2)], r"places 0 to 3, got '3'"),
        (lambda: [Straggler(3, 0.5)], r"factor: expected a number of at least 1, got 0.5"),
        (lambda: [Straggler(3, "fast")], r"factor: expected .*, got 'fast'"),
        (lambda: [LinkChange("rank 3 up", 0, 0)], r"factor: expected a number above 0, got 0"),
        (lambda: [LinkChange("rank 3 upp", 0, 2)], r"no link 'rank 3 upp'; .* 'rank 3 up'\?"),
        (lambda: [LinkFailure(8, 0)], r"switch has links 0 to 7, got 8"),
        (lambda: [LinkFailure(None, 0)], r"switch has links 0 to 7, got None"),
        (lambda: [Background(0, 4, 1)], r"places 0 to 3, got 4"),
        (lambda: [Background(2, 2, 1)], r"expected two places, got 2 twice"),
        (lambda: [Background(0, 1)], r"a bandwidth, or nbytes, or both; got neither"),
        (lambda: [Background(0, 1, nbytes=0)], r"nbytes: expected at least 1, got 0"),
        (lambda: [Background(0, 1, 5, start="2s", stop=1)], r"stops at 1, no later .* 2s"),
        (lambda: ["slow"], r"expected Jitter, Straggler, .* got 'slow'"),
        (lambda: [Straggler(3, delay="soon")], "delay of a straggler: .*'soon'"),
        (lambda: [LinkFailure(3, at=-1)], "time of a link failure: -1 is negative"),
        (lambda: [Background(0, 1, "fast")], "bandwidth of background: .*'fast'"),
        (lambda: [Straggler(1, 2), Straggler(1, 3)], r"2 for Straggler\(rank=1\); give one"),
        (lambda: [Jitter("1us"), Jitter("2us")], "2 for Jitter"),
        (lambda: [LinkFailure(0, 1), LinkFailure("rank 0 up", 2)], "2 for LinkFailure of .* 0 up"),
        (lambda: [LinkChange(0, 1, 2), LinkChange("rank 0 up", "1s", 3)], "of link rank 0 up at"),
    ],
)  # fmt: skip
def test_conditions_that_cannot_be_or_contradict_each_other_are_refused_and_named(make, said):
    with pytest.raises((ConditionError, UnitError), match=said) as raised:
        Scenario.of(switch(4, 10**9, "1us"), make())
    assert "\n" not in str(raised.value)
