from __future__ import annotations

import pytest

from benchmarks.synthesis import random_graph
from collectives import NotSupportedError, verify
from collectives.simulation import simulate
from collectives.synthesis import COLLECTIVES, synthesize
from sim import Topology, load_network
from sim.topology.routing import LinkSpec
from tests.collectives.synthesis.test_cut import graph_of

pytest.importorskip("scipy")


def two_racks() -> Topology:
    """Return racks of three and two ranks, with unequal links, behind a thin trunk."""
    ranks, links = [f"r{number}" for number in range(5)], []
    for number, rank in enumerate(ranks):
        leaf, rate = ("a", 10) if number < 3 else ("b", 25)
        links += [LinkSpec(rank, leaf, rate * 10**9, 10**6), LinkSpec(leaf, rank, rate * 10**9, 10**6)]
    links += [LinkSpec("a", "b", 5 * 10**9, 10**6), LinkSpec("b", "a", 5 * 10**9, 10**6)]
    return Topology.graph(ranks=ranks, switches=["a", "b"], links=links)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_program_is_proved_and_no_faster_than_the_optimum(collective: str) -> None:
    topology = two_racks() if collective.startswith("all") else graph_of(1)
    root = 3 if collective in ("broadcast", "reduce") else 0

    made = synthesize(topology, collective, 1 << 9, root=root)

    verify(made.algorithm, 5, root=root)
    assert made.optimum_seconds <= made.best_seconds <= made.seconds


@pytest.mark.costly
@pytest.mark.parametrize("name", ["aws-p4d", "dgx-a100"])
@pytest.mark.parametrize("collective", ["all_gather", "all_reduce"])
def test_two_nodes_come_within_three_per_cent_of_the_optimum(name: str, collective: str) -> None:
    made = synthesize(load_network(name).topology(16), collective)

    assert made.fraction_of_optimum >= 0.97
    assert made.shipped_seconds is not None
    assert made.shipped_seconds > 1.3 * made.seconds


@pytest.mark.costly
def test_an_all_reduce_behind_a_slow_link_keeps_links_that_are_faster_from_filling_up() -> None:
    made = synthesize(random_graph(14), "all_reduce")

    assert made.fraction_of_optimum >= 0.98


@pytest.mark.costly
def test_parts_go_through_other_ranks_where_that_is_faster() -> None:
    rates = {("a", "b"): 100, ("b", "c"): 100, ("a", "c"): 5}
    links = [
        LinkSpec(*ends, rate * 10**9, 10**6) for pair, rate in rates.items() for ends in (pair, pair[::-1])
    ]
    topology = Topology.graph(ranks=["a", "b", "c"], links=links)

    made = synthesize(topology, "all_to_all", 1 << 20)

    assert verify(made.algorithm, 3).num_steps == made.num_steps
    assert made.height == 2
    assert made.shipped_seconds is not None
    assert made.shipped_seconds > 2 * made.seconds


def test_what_ships_is_returned_where_it_is_faster() -> None:
    topology = load_network("switch-100g").topology(4)

    made = synthesize(topology, "all_gather", 64)
    program = made.best_schedule().algorithm()

    assert made.shipped is not None
    assert made.best_seconds == made.shipped_seconds <= made.seconds
    assert verify(program, 4).num_steps == verify(made.shipped, 4).num_steps
    assert simulate(program, nbytes=64, topology=topology).seconds == made.shipped_seconds


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="all_gather"):
        synthesize(load_network("switch-100g").topology(4), "gather")
    with pytest.raises(NotSupportedError, match="2 to"):
        synthesize(load_network("switch-100g").topology(1))
