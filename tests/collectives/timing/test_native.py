"""Collectives of a vendor's library on a simulated network."""

import pytest

from collectives import NotSupportedError, simulate
from collectives.catalogue.native import native_program
from collectives.program.contracts import CONTRACTS
from ddp import simulate_step
from ddp.profiles import load_profile
from sim import Topology

SWITCH = Topology.switch(num_ranks=4, bandwidth="1Gbps", latency="20us")
MIB = 1 << 20


@pytest.mark.parametrize("collective", CONTRACTS)
def test_native_over_gloo_is_the_program_that_gloo_runs(collective):
    asked = {"nbytes": 16 * MIB, "topology": SWITCH, "collective": collective, "itemsize": 4}
    program = native_program(collective, 4, 16 * MIB, 4)

    run = simulate("native", transport_model="gloo", **asked)

    assert run.time_ps == simulate(program, transport_model="gloo", **asked).time_ps
    assert run.algorithm.startswith(program.name)


@pytest.mark.parametrize("model", ["ideal", "nccl"])
def test_native_is_refused_where_nobody_knows_what_the_vendor_runs(model):
    with pytest.raises(NotSupportedError, match="native: which program a vendor runs"):
        simulate("native", nbytes=MIB, topology=SWITCH, transport_model=model)


def test_both_children_of_gloo_s_root_share_its_link():
    # 2 S / B until ranks 1 and 2 have the buffer, S / B until rank 3 has it from rank 1; two latencies.
    run = simulate("native", nbytes=125_000, topology=SWITCH, collective="broadcast", transport_model="gloo")

    assert run.time_ps == 3 * 10**9 + 2 * 40 * 10**6


def test_a_training_step_runs_native_over_gloo():
    profile = load_profile("resnet50")

    step = simulate_step(profile, topology=SWITCH, algorithm="native", transport_model="gloo")

    assert step.time_ps > step.compute_ps
    with pytest.raises(NotSupportedError, match="native"):
        simulate_step(profile, topology=SWITCH, algorithm="native")
