from math import gcd

from hypothesis import given
from hypothesis import strategies as st

from collectives import Send, verify
from collectives.algorithms import hierarchical_all_to_all
from collectives.program import as_step
from collectives.timing.cost import selector_on
from sim.scenario.rank_overhead import RankOverhead
from sim.topology.description import load_network
from sim.units import SECOND


@given(world_size=st.integers(2, 32), ranks_per_node=st.integers(1, 9))
def test_it_is_right_on_nodes_of_any_size_in_two_steps(world_size, ranks_per_node):
    proof = verify(f"hierarchical:ranks_per_node={ranks_per_node}", world_size, collective="all_to_all")

    assert proof.num_steps == (1 if gcd(world_size, ranks_per_node) in (1, world_size) else 2)


def test_a_rank_sends_one_message_to_each_of_its_node_and_of_its_rail():
    steps = hierarchical_all_to_all(11, 32, ranks_per_node=8)

    peers = [own.peer for step in steps for own in as_step(step) if isinstance(own, Send)]

    assert sorted(peers[:7]) == [8, 9, 10, 12, 13, 14, 15]
    assert sorted(peers[7:]) == [3, 19, 27]


def test_auto_takes_it_where_each_message_costs_something_and_bytes_as_well():
    topology = load_network("dgx-h100").topology(64)
    selector = selector_on(topology, "auto", rank_overhead=RankOverhead(overhead_ps=SECOND // 10**6))

    chosen = [str(selector.select("all_to_all", nbytes)) for nbytes in (2**12, 2**22)]

    assert chosen == ["bruck", "hierarchical:ranks_per_node=8"]
    assert str(selector_on(topology, "auto").select("all_to_all", 2**22)) == "direct"
