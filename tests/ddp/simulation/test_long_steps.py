"""Steps that take longer than times of 64 bits are refused by name, not answered wrongly."""

from __future__ import annotations

import pytest

from collectives.errors import NotSupportedError
from ddp.profiles import Profile
from ddp.simulation.simulated_step import simulate_step
from sim.topology import Topology


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_a_step_of_months_is_exact_or_refused(algorithm: str) -> None:
    topology = Topology.switch(num_ranks=4, bandwidth=1, latency="9000000s")
    profile = Profile.uniform(1, 2**20, 1.0)

    try:
        step = simulate_step(profile, topology=topology, algorithm=algorithm)
    except NotSupportedError:
        return
    assert step.time_ps >= step.floor_ps
