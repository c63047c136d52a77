"""The largest flow is that of another implementation, on any small graph."""

import networkx
from hypothesis import given
from hypothesis import strategies as st

from testbed.studies.network_survey import maximum_flow

VERTICES = st.integers(0, 6)


@given(
    st.dictionaries(st.tuples(VERTICES, VERTICES).filter(lambda ends: ends[0] != ends[1]), st.integers(0, 9))
)
def test_a_flow_is_the_largest(capacities):
    edges = [(tail, head, most) for (tail, head), most in capacities.items()]
    graph = networkx.DiGraph()
    graph.add_nodes_from((0, 1))
    graph.add_weighted_edges_from(edges, weight="capacity")

    assert maximum_flow(edges, 0, 1) == networkx.maximum_flow_value(graph, 0, 1)
