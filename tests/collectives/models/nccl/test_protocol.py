"""NCCL's protocols on a simulated network: payload, latency of a message, and where they do not apply."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from collectives.models.nccl.constants import PROTOCOLS, NcclProtocol
from collectives.models.nccl.protocol import PAYLOAD, hop_latency_ps, with_protocol
from collectives.simulation import simulate
from sim import Topology
from sim.hardware import Channels, Hardware
from sim.units import transfer_ps
from tests.given import nodes


def pair(latency_ps: int = 0, rate: int = 10**9) -> Topology:
    latency = f"{latency_ps}ps"
    return Topology.switch(num_ranks=2, bandwidth=rate, latency=latency)


def pod(intra_latency: str = "300ns", nic_latency: str = "1us") -> Topology:
    rates = {"intra_bandwidth": "450GB/s", "nic_bandwidth": "50GB/s"}
    return nodes(2, 4, 2, intra_latency=intra_latency, nic_latency=nic_latency, name="pod", **rates)


def path_ps(topology: Topology, source: int, destination: int) -> int:
    return int(topology.link_latency[list(topology.route(source, destination))].sum())


@pytest.mark.parametrize(
    ("protocol", "payload"), [("LL", Fraction(1, 2)), ("LL128", Fraction(15, 16)), ("Simple", Fraction(1))]
)
@given(st.integers(1, 10**13))
def test_a_link_carries_the_part_of_its_bytes_that_is_payload(
    protocol: NcclProtocol, payload: Fraction, rate: int
) -> None:
    seen = with_protocol(pair(rate=rate), protocol)

    assert PAYLOAD[protocol] == payload
    assert seen.link_bandwidth.tolist() == [max(1, int(rate * payload))] * 4


@pytest.mark.parametrize(
    ("protocol", "nvlink", "pci", "net"),
    [("LL", 600, 1000, 2700), ("LL128", 1900, 2500, 4000), ("Simple", 3400, 5700, 14000)],
)
def test_the_nearest_two_ranks_are_one_hop_of_nccl_apart(
    protocol: NcclProtocol, nvlink: int, pci: int, net: int
) -> None:
    seen = with_protocol(pod(), protocol)
    hardware = Hardware("ampere", Channels.of(1, "10GB/s"), intra_link="pci")
    over_pci = with_protocol(replace(pod(), hardware=hardware), protocol)

    assert path_ps(seen, 0, 1) == nvlink * 1000
    assert path_ps(over_pci, 0, 1) == pci * 1000
    assert path_ps(seen, 0, 4) == path_ps(seen, 6, 3) == net * 1000
    assert path_ps(with_protocol(pair(), protocol), 0, 1) == net * 1000


@given(st.sampled_from(PROTOCOLS), st.integers(0, 10**8))
def test_a_wire_that_is_slower_than_nccls_figure_stays_as_it_is(
    protocol: NcclProtocol, latency_ps: int
) -> None:
    wire = 2 * latency_ps

    assert path_ps(with_protocol(pair(latency_ps), protocol), 0, 1) == max(
        wire, hop_latency_ps(protocol, "net")
    )


@given(st.sampled_from(PROTOCOLS), st.lists(st.integers(0, 10**6), min_size=4, max_size=12))
def test_from_every_rank_the_nearest_is_one_hop_away_and_the_others_are_farther_by_their_wires(
    protocol: NcclProtocol, down: list[int]
) -> None:
    flat = Topology.switch(num_ranks=len(down), bandwidth=1, latency=0)
    seen = with_protocol(replace(flat, link_latency=np.array([*down[::-1], *down], dtype=np.int64)), protocol)

    for rank, far in enumerate(down):
        source = (rank + 1) % len(down)
        assert path_ps(seen, source, rank) == hop_latency_ps(protocol, "net") + far - min(down)


@given(st.sampled_from(PROTOCOLS), st.integers(1, 10**9))
def test_a_simulated_ring_pays_both_at_every_step(protocol: NcclProtocol, nbytes: int) -> None:
    network = Topology.switch(num_ranks=4, bandwidth=10**10, latency="1us")
    rate = int(10**10 * PAYLOAD[protocol])

    run = simulate("ring", nbytes=nbytes, topology=with_protocol(network, protocol))

    assert run.time_ps == 6 * (hop_latency_ps(protocol, "net") + transfer_ps(-(-nbytes // 4), rate))


def test_the_network_keeps_everything_else_and_says_the_protocol() -> None:
    before = pod()
    digest = before.digest()

    seen = with_protocol(before, "LL128")

    assert seen.name == "pod, LL128"
    assert seen.routing is before.routing
    assert seen.digest() != digest == before.digest()
    assert np.array_equal(
        with_protocol(pod("10us", "10us"), "Simple").link_latency, pod("10us", "10us").link_latency
    )


def test_where_it_does_not_apply_it_is_refused_by_name() -> None:
    ring = Topology.ring(num_ranks=4, bandwidth=1, latency=0)
    unclear = replace(Topology.switch(num_ranks=4, bandwidth=1, latency=0, name="boxes"), ranks_per_node=2)

    with pytest.raises(NotSupportedError, match="protocol LL on ring: ranks are linked to ranks"):
        with_protocol(ring, "LL")
    with pytest.raises(NotSupportedError, match="protocol LL on boxes: it cannot be told which links"):
        with_protocol(unclear, "LL")
    with pytest.raises(ValueError, match="protocol: expected one of LL, LL128, Simple, got 'simple'"):
        with_protocol(ring, "simple")  # type: ignore[arg-type]
