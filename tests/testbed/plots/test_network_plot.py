"""Sketches and pictures of networks: everything is on them, and what repeats is said once."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_network
from sim.topology import Topology
from sim.topology.kinds.graph import LinkSpec
from testbed.plots.drawn_network import drawn_network, sketch
from testbed.plots.network_layout import (
    PAGE,
    ROOM,
    drawn_wiring,
    first_half,
    lines_between,
    parts,
    places_of,
    spell_names,
)
from testbed.plots.picture import draw
from tests.sim.networks import networks

ROOT = Path(__file__).parents[3]
LINK = {"bandwidth": "100Gbps", "latency": "1us"}
PIPE = [LinkSpec("a", "b", 1, 0), LinkSpec("b", "a", 1, 0)]
CLUSTER = {
    "intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps", "nodes_per_leaf": 2, "nodes_per_pod": 4,
    "routing": "ecmp",
}  # fmt: skip
NETWORKS = {
    "one rank": Topology.switch(num_ranks=1, **LINK),
    "ring": Topology.ring(num_ranks=9, **LINK),
    "pair": Topology.ring(num_ranks=2, **LINK),
    "grid": Topology.torus(shape=(3, 1, 4), **LINK),
    "cube": Topology.torus(shape=(4, 4, 4), **LINK),
    "five dimensions": Topology.torus(shape=(2, 3, 2, 2, 3), **LINK),
    "nodes": load_network("dgx-h100").topology(20),
    "leaves": Topology.leaf_spine(num_ranks=30, hosts_per_leaf=4, uplink_bandwidth=1, num_spines=3, **LINK),
    "host": Topology.host(num_ranks=4, memory_bandwidth=1, **LINK),
    "fat tree": Topology.fat_tree(k=8, **LINK),
    "cluster": Topology.cluster(num_ranks=48, ranks_per_node=4, **CLUSTER),
    "graph": load_network(ROOT / "examples" / "cluster.toml").topology(),
    "unused switch": Topology.graph(ranks=["a", "b"], switches=["s"], links=PIPE),
    "no switch": Topology.graph(ranks=["a", "b"], links=PIPE),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_every_kind_can_be_drawn_and_sketched(tmp_path, name, suffix):
    path = tmp_path / f"network{suffix}"

    draw(drawn_network(NETWORKS[name]), path, title="a title", note="a note")

    assert path.stat().st_size > 2000
    assert 0 < len(sketch(NETWORKS[name]).splitlines()) < 60


@given(networks())
def test_every_rank_is_in_exactly_one_part_and_all_of_a_sketch_fits_on_a_screen(topology):
    found = parts(topology.routing.wiring(), topology.num_ranks)

    assert sorted(rank for part in found for rank in part.ranks()) == list(range(topology.num_ranks))
    assert 0 < len(sketch(topology).splitlines()) < 60


SKETCHES = {
    "leaves": (
        Topology.leaf_spine(num_ranks=40, hosts_per_leaf=8, uplink_bandwidth="25GB/s", **LINK),
        "spine 0\n"
        "├─ leaf 0  (up: 1 x 25 GB/s, 1 us)\n"
        "│  └─ rank 0-7  (up: 8 x 12.5 GB/s, 1 us)\n"
        "├─ leaf 1  (up: 1 x 25 GB/s, 1 us)\n"
        "│  └─ rank 8-15  (up: 8 x 12.5 GB/s, 1 us)\n"
        "├─ … 2 more\n"
        "└─ leaf 4  (up: 1 x 25 GB/s, 1 us)\n"
        "   └─ rank 32-39  (up: 8 x 12.5 GB/s, 1 us)",
    ),
    "torus": (
        Topology.torus(shape=(2, 3), **LINK),
        "┄ ─ 0 ─ 1 ─ 2 ─ ┄\n    │   │   │\n┄ ─ 3 ─ 4 ─ 5 ─ ┄\nRows close: ┄ goes on at the other end.",
    ),
    "no switch": (NETWORKS["no switch"], "a ─ b\nb ─ a"),
}


@pytest.mark.parametrize("name", SKETCHES)
def test_a_sketch_says_what_hangs_where_and_counts_what_repeats(name):
    topology, drawn = SKETCHES[name]

    assert sketch(topology) == drawn


@given(st.lists(st.integers(0, 30), unique=True, min_size=1))
def test_runs_of_numbers_are_drawn_together_and_can_be_read_back(numbers):
    text = spell_names([f"rank {number}" for number in numbers])

    read = []
    for run in text.split(", "):
        first, _, last = run.removeprefix("rank ").partition("-")
        read += range(int(first), int(last or first) + 1)
    assert read == numbers


def test_the_two_directions_of_a_card_are_one_thing_in_a_drawing():
    wiring = NETWORKS["nodes"].routing.wiring()

    names = drawn_wiring(wiring).names

    assert [name for name in names if name.endswith((" in", " out"))] == []
    assert len(set(names)) == len(names)
    assert names[:20] == wiring.names[:20]


def test_no_link_is_drawn_through_a_switch_that_it_does_not_join():
    topology = NETWORKS["graph"]
    wiring = drawn_wiring(topology.routing.wiring())
    places = places_of(topology, wiring)
    inches = PAGE / np.ptp(places, axis=0)

    lines = {
        (tail, head): lines_between(topology, tail, head, places)[0]
        for tail, head in zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True)
    }

    assert any(len(line) > 2 for line in lines.values())
    for (tail, head), line in lines.items():
        shown = np.linspace(line[0], line[-1], 25) if len(line) == 2 else line
        others = np.delete(places, [tail, head], axis=0)
        between = others[(others[:, 1] > shown[:, 1].min()) & (others[:, 1] < shown[:, 1].max())]
        assert all(np.hypot(*((shown - one) * inches).T).min() >= ROOM for one in between)
        if (head, tail) in lines:
            assert np.allclose(first_half(line)[-1], first_half(lines[head, tail])[-1])
