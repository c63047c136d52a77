from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest

from collectives.synthesis.cut import narrowest_cut
from sim import Topology, load_network
from sim.topology.routing import LinkSpec

pytest.importorskip("scipy")


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
def test_the_narrowest_cut_is_the_worst_of_all_sets(seed: int, outward: bool) -> None:
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
def test_two_nodes_have_the_known_optimum_of_an_all_gather(name: str, algbw: float) -> None:
    cut = narrowest_cut(load_network(name).topology(16), [Fraction(1, 16)] * 16)

    assert float(1 / cut.seconds_per_byte) / 1e9 == pytest.approx(algbw, abs=0.05)
