"""Networks in which every rank has all links to itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from sim.topology.routing import UnsharedRouting
from tests.sim.networks import networks


@given(networks(max_ranks=8))
def test_every_rank_takes_the_usual_way_over_links_of_its_own(topology):
    ranks = topology.num_ranks
    alone = replace(
        topology,
        link_bandwidth=np.tile(topology.link_bandwidth, ranks),
        link_latency=np.tile(topology.link_latency, ranks),
        routing=UnsharedRouting(topology.routing, topology.num_links, ranks),
    )
    pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
    owners = {}

    for source, destination in pairs:
        usual, own = topology.route(source, destination), alone.route(source, destination)
        assert [link % topology.num_links for link in own] == list(usual)
        assert [alone.link_name(link) for link in own] == [
            f"{topology.link_name(link)} for rank {source}" for link in usual
        ]
        assert {owners.setdefault(link, source) for link in own} <= {source}
    if pairs:
        sources, destinations = zip(*pairs, strict=True)
        table = alone.routes(sources, destinations)
        assert [tuple(row[row >= 0].tolist()) for row in table] == [alone.route(*pair) for pair in pairs]
