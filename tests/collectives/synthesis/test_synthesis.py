"""Synthesis: its cuts, trees, messages and few steps, and the programs that it makes."""

from fractions import Fraction
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthesis import random_graph
from collectives import NotSupportedError, simulate, verify
from collectives.synthesis import COLLECTIVES, search, synthesize
from collectives.synthesis.arborescence import cheapest_tree, depths, shallower
from collectives.synthesis.candidates import Problem
from collectives.synthesis.cut import narrowest_cut
from collectives.synthesis.demand import Demand
from collectives.synthesis.exchange import messages_of
from collectives.synthesis.few_steps import MAX_RANKS, few_steps
from collectives.synthesis.packing import GAP, pack
from collectives.synthesis.routes import Routes
from collectives.synthesis.symmetry import no_symmetry, symmetry_of
from sim import Topology, load_network
from sim.topology.kinds.graph import LinkSpec

pytest.importorskip("scipy")
pytest.importorskip("z3")

MIRRORED = ("reduce_scatter", "all_gather", "reduce")
"""Halves of an all-reduce, and a broadcast the other way round."""


def cable(one: str, other: str, rate: int) -> list[LinkSpec]:
    """Return links both ways of so many GB/s."""
    return [LinkSpec(*ends, rate * 10**9, 10**6) for ends in ((one, other), (other, one))]


def two_racks() -> Topology:
    """Return racks of three and two ranks, with unequal links, behind a thin trunk."""
    ranks, links = [f"r{number}" for number in range(5)], cable("a", "b", 5)
    for number, rank in enumerate(ranks):
        links += cable(rank, "a", 10) if number < 3 else cable(rank, "b", 25)
    return Topology.graph(ranks=ranks, switches=["a", "b"], links=links)


@pytest.mark.parametrize(
    "collective",
    [pytest.param(name, marks=pytest.mark.costly if name in MIRRORED else ()) for name in COLLECTIVES],
)
def test_a_program_is_proved_and_no_faster_than_the_optimum(collective):
    topology = two_racks() if collective.startswith("all") else graph_of(1)
    root = 3 if collective in ("broadcast", "reduce") else 0

    made = synthesize(topology, collective, 1 << 9, root=root)

    verify(made.algorithm, 5, root=root)
    assert made.optimum_seconds <= made.best_seconds <= made.seconds


@pytest.mark.costly
@pytest.mark.parametrize("name", ["aws-p4d", "dgx-a100"])
@pytest.mark.parametrize("collective", ["all_gather", "all_reduce"])
def test_two_nodes_come_within_three_per_cent_of_the_optimum(name, collective):
    made = synthesize(load_network(name).topology(16), collective)

    assert made.fraction_of_optimum >= 0.97
    assert made.shipped_seconds is not None
    assert made.shipped_seconds > 1.3 * made.seconds


@pytest.mark.costly
def test_an_all_reduce_behind_a_slow_link_keeps_links_that_are_faster_from_filling_up():
    made = synthesize(random_graph(14), "all_reduce")

    assert made.fraction_of_optimum >= 0.98


@pytest.mark.costly
def test_parts_go_through_other_ranks_where_that_is_faster():
    links = [*cable("a", "b", 100), *cable("b", "c", 100), *cable("a", "c", 5)]
    topology = Topology.graph(ranks=["a", "b", "c"], links=links)

    made = synthesize(topology, "all_to_all", 1 << 20)

    assert verify(made.algorithm, 3).num_steps == made.num_steps
    assert made.height == 2
    assert made.shipped_seconds is not None
    assert made.shipped_seconds > 2 * made.seconds


def test_what_ships_is_returned_where_it_is_faster():
    topology = load_network("switch-100g").topology(4)

    made = synthesize(topology, "all_gather", 64)
    program = made.best_schedule().algorithm()

    assert made.shipped is not None
    assert made.best_seconds == made.shipped_seconds <= made.seconds
    assert verify(program, 4).num_steps == verify(made.shipped, 4).num_steps
    assert simulate(program, nbytes=64, topology=topology).seconds == made.shipped_seconds


def test_what_cannot_be_made_is_refused():
    with pytest.raises(NotSupportedError, match="all_gather"):
        synthesize(load_network("switch-100g").topology(4), "gather")
    with pytest.raises(NotSupportedError, match="2 to"):
        synthesize(load_network("switch-100g").topology(1))


@pytest.mark.parametrize("seed", range(12))
def test_the_cheapest_tree_costs_what_networkx_finds(seed):
    random = np.random.default_rng(seed)
    size = int(random.integers(2, 9))
    weights = random.integers(0, 6, (size, size)).astype(float)
    np.fill_diagonal(weights, np.inf)
    graph = nx.DiGraph()
    for tail, head in zip(*np.nonzero(np.isfinite(weights)), strict=True):
        if head != 0:
            graph.add_edge(int(tail), int(head), weight=weights[tail, head] + 1)

    tree = cheapest_tree(weights, 0)
    raised = shallower(tree, weights)

    expected = nx.minimum_spanning_arborescence(graph).size("weight") - (size - 1)
    for own in (tree, raised):
        assert weights[own[1:], np.arange(1, size)].sum() == expected
    assert depths(raised).max() <= depths(tree).max() < size


@pytest.mark.parametrize(("name", "order"), [("aws-p4d", 16), ("switch-100g", 16)])
def test_ranks_that_are_alike_are_packed_as_one(name, order):
    pytest.importorskip("scipy")
    routes = Routes.of(load_network(name).topology(16))
    symmetry = symmetry_of(routes)

    folded = pack(Demand(routes, symmetry, symmetry.representatives, 1 / 16))
    plain = pack(Demand(routes, no_symmetry(routes), range(16), 1 / 16))

    assert (symmetry.order, symmetry.representatives) == (order, [0])
    for packed in (folded, plain):
        assert packed.bound <= packed.seconds_per_byte <= packed.bound * (1 + 2 * GAP), "not the best"
    assert folded.seconds_per_byte == pytest.approx(plain.seconds_per_byte, rel=3e-3)


FIRST_SCRATCH = 6

CHUNKS = st.integers(0, 11)


@settings(max_examples=50)
@given(st.dictionaries(CHUNKS, CHUNKS, min_size=1))
def test_messages_move_each_chunk_once_and_lie_in_the_buffer_or_in_scratch(moved):
    messages = messages_of({(0, 1): list(moved.items())}, FIRST_SCRATCH)

    told = [
        (own.source_chunk + place, own.chunk + place) for own in messages for place in range(own.num_chunks)
    ]
    assert sorted(told) == sorted(moved.items())
    for own in messages:
        for first in (own.source_chunk, own.chunk):
            assert (first < FIRST_SCRATCH) == (first + own.num_chunks <= FIRST_SCRATCH)


NBYTES = 4096


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("seed", [28, 31])
def test_a_program_is_right_and_takes_no_longer_than_the_solver_was_told(collective, seed):
    topology = random_graph(seed)
    assert topology.num_ranks <= MAX_RANKS

    found = few_steps(Problem.of(topology, collective, 1), NBYTES, below=1e-3)

    algorithm = found.schedule(topology, collective, 1).algorithm()
    verify(algorithm, topology.num_ranks, root=1)
    taken = simulate(algorithm, nbytes=NBYTES, topology=topology).seconds
    assert 0.8 * found.estimate < taken < found.estimate * (1 + 1e-6)


@pytest.mark.costly
def test_few_steps_are_faster_where_latency_counts(monkeypatch):
    topology = random_graph(28)
    best = synthesize(topology, "broadcast", NBYTES).best_seconds
    monkeypatch.setattr(search, "has_solver", lambda: False)

    assert best < 0.95 * synthesize(topology, "broadcast", NBYTES).best_seconds


def graph_of(seed: int) -> Topology:
    """Return five ranks on a ring of unequal links, with chords, by *seed*."""
    links = []
    for number in range(5):
        for step, rate in ((1, 3 + (7 * seed + number) % 5), (2, 1 + (3 * seed + number * number) % 4)):
            other = (number + step) % 5
            for tail, head in ((number, other), (other, number)):
                links.append(LinkSpec(f"r{tail}", f"r{head}", (rate + (tail > head)) * 10**9, 10**6))
    return Topology.graph(ranks=[f"r{number}" for number in range(5)], links=links)


@pytest.mark.parametrize("outward", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_narrowest_cut_is_the_worst_of_all_sets(seed, outward):
    topology = graph_of(seed)
    wiring = topology.routing.wiring()
    worst = Fraction(0)
    for size in range(1, 5):
        for inside in combinations(range(5), size):
            rate = 0
            for link, (tail, head) in enumerate(zip(wiring.tail, wiring.head, strict=True)):
                leaves = (tail in inside, head in inside) == ((True, False) if outward else (False, True))
                rate += int(topology.link_bandwidth[link]) * leaves
            worst = max(worst, Fraction(size, 5) / rate)

    found = narrowest_cut(topology, [Fraction(1, 5)] * 5, outward=outward)

    assert found.seconds_per_byte == worst


@pytest.mark.parametrize(("name", "algbw"), [("dgx-a100", 276.0), ("aws-p4d", 89.2)])
def test_two_nodes_have_the_known_optimum_of_an_all_gather(name, algbw):
    cut = narrowest_cut(load_network(name).topology(16), [Fraction(1, 16)] * 16)

    assert float(1 / cut.seconds_per_byte) / 1e9 == pytest.approx(algbw, abs=0.05)
