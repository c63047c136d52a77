"""Token exchange in two levels: how many copies tokens make, and what bounds their time."""

from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from collectives.timing.formulas.token_exchange import Exchanged, exchange_us
from sim import load_network


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.data())
def test_copies_are_the_ranks_and_nodes_that_a_drawn_token_reaches(nodes, per_node, each, data):
    ranks = nodes * per_node
    experts = ranks * each
    chosen = data.draw(st.integers(1, experts))

    own = Exchanged(1, 64, chosen, experts, ranks, per_node)

    taken = list(combinations(range(experts), chosen))
    assert own.copies == pytest.approx(mean(len({e // each for e in one}) for one in taken))
    reached = mean(len({e // each // per_node for e in one}) for one in taken)
    assert own.leaving == pytest.approx(reached * (nodes - 1) / nodes)


def test_with_enough_multiprocessors_many_tokens_take_what_their_rail_takes():
    topology = load_network("dgx-h100").topology(32)
    own = Exchanged(1 << 20, 7168, 8, 256, 32, 8)
    rail = min(int(topology.link_bandwidth[link]) for link in topology.route(0, 8))

    seconds = exchange_us("combine", own, topology, 132) / 1e6

    assert seconds == pytest.approx(own.leaving * 2 * 7168 * own.tokens / (0.91 * rail), rel=1e-3)


def test_what_does_not_divide_and_what_is_no_known_gpu_is_refused():
    with pytest.raises(NotSupportedError, match="10 experts of which a token takes 2, on 4 ranks"):
        Exchanged(1, 64, 2, 10, 4, 2)
    with pytest.raises(NotSupportedError, match="hopper or blackwell, got ampere"):
        exchange_us("dispatch", Exchanged(1, 64, 2, 8, 8, 8), load_network("dgx-a100").topology(8), 24)
