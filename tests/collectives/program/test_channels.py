from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError, resolve_algorithm, simulate, verify
from collectives.algorithms import ALGORITHMS
from collectives.program.channels import in_channels, order_of_ranks
from sim import Topology


@given(
    shipped=st.sampled_from(ALGORITHMS),
    channels=st.integers(1, 4),
    world_size=st.integers(1, 10),
    ranks_per_node=st.integers(1, 4),
)
def test_every_shipped_algorithm_is_right_on_channels_at_no_more_steps(
    shipped: Any, channels: int, world_size: int, ranks_per_node: int
) -> None:
    root = world_size // 2
    on_channels = in_channels(shipped, channels).with_parameters(ranks_per_node=ranks_per_node)
    if "ranks_per_node" in shipped.parameter_names():
        shipped = shipped.with_parameters(ranks_per_node=ranks_per_node)
    try:
        alone = verify(shipped, world_size, root=root)
    except NotSupportedError:
        with pytest.raises(NotSupportedError):
            verify(on_channels, world_size, root=root)
        return

    proof = verify(on_channels, world_size, root=root)

    assert proof.num_chunks == channels * alone.num_chunks
    assert proof.num_steps >= alone.num_steps
    assert proof.max_bytes_sent_fraction <= alone.max_bytes_sent_fraction


@given(world_size=st.integers(1, 40), channel=st.integers(0, 20), ranks_per_node=st.integers(1, 9))
def test_an_order_visits_every_rank_once_and_node_by_node(
    world_size: int, channel: int, ranks_per_node: int
) -> None:
    order = order_of_ranks(world_size, channel, ranks_per_node)
    nodes = [rank // ranks_per_node for rank in order]

    assert sorted(order) == list(range(world_size))
    assert nodes == sorted(nodes) or ranks_per_node == 1


def test_two_rings_use_both_directions_of_a_ring_of_links() -> None:
    ranks, nbytes = 16, 16 * 2**20
    topology = Topology.ring(num_ranks=ranks, bandwidth="1GB/s", latency="0s")
    one, two = (simulate(name, nbytes=nbytes, topology=topology) for name in ("ring", "ring:channels=2"))

    assert one.time_ps == 2 * two.time_ps


def test_a_ring_per_network_card_uses_all_cards_of_a_node() -> None:
    topology = Topology.nodes(
        num_nodes=4,
        ranks_per_node=4,
        intra_bandwidth="1TB/s",
        intra_latency="0s",
        nics_per_node=4,
        nic_bandwidth="1GB/s",
        nic_latency="0s",
    )
    one, four = (
        simulate(f"ring:channels={channels},ranks_per_node=4", nbytes=2**24, topology=topology)
        for channels in (1, 4)
    )

    assert one.time_ps == pytest.approx(4 * four.time_ps, rel=0.02)


@pytest.mark.parametrize("channels", [0, -1, 65, "many", 1.5])
def test_a_number_of_channels_that_cannot_be_is_refused(channels: Any) -> None:
    with pytest.raises(NotSupportedError, match="channels must be from 1 to 64, got"):
        in_channels(resolve_algorithm("ring"), channels)


def test_channels_are_a_parameter_of_every_name() -> None:
    for name, collective in (("ring", "all_gather"), ("tree:root=2", "broadcast"), ("chain", "all_reduce")):
        text = name + ("," if ":" in name else ":") + "channels=3"
        assert resolve_algorithm(text, collective).num_chunks(5) == 3 * resolve_algorithm(
            name, collective
        ).num_chunks(5)
