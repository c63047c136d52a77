"""A fit finds the network again that made the times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.simulation import simulate
from sim import Topology
from testbed.truth.calibration.one_switch import fit_switch

SIZES = [2**exponent for exponent in range(12, 25, 3)]


def seconds_of(algorithm: str) -> Callable[[int, Topology], float]:
    return lambda nbytes, topology: simulate(algorithm, nbytes=nbytes, topology=topology).seconds


@given(
    algorithm=st.sampled_from(["naive", "ring", "tree"]),
    world_size=st.integers(2, 9),
    bandwidth=st.integers(10**8, 10**11),
    latency=st.floats(1e-6, 1e-3),
)
@settings(max_examples=25)
def test_the_network_that_made_the_times_is_found_again(
    algorithm: str, world_size: int, bandwidth: int, latency: float
) -> None:
    network = Topology.switch(num_ranks=world_size, bandwidth=bandwidth, latency=round(latency, 9))
    seconds = [simulate(algorithm, nbytes=size, topology=network).seconds for size in SIZES]

    fitted = fit_switch(seconds_of(algorithm), world_size, SIZES, seconds)

    again = [simulate(algorithm, nbytes=size, topology=fitted).seconds for size in SIZES]
    assert again == pytest.approx(seconds, rel=1e-3)


def test_times_that_fall_with_size_still_give_a_network() -> None:
    fitted = fit_switch(seconds_of("ring"), 4, SIZES, [1e-3 / (number + 1) for number in range(len(SIZES))])

    assert fitted.link_bandwidth[0] > 0
    assert fitted.link_latency[0] >= 0
