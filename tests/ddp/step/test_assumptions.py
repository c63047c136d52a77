"""Software, protocol, transport and closed forms in a training step count as they do in a collective."""

from typing import Any

import pytest

from collectives import NotSupportedError, simulate
from ddp import Profile, simulate_step
from ddp.reduction.bucketing import MIB
from sim import Topology, UnitError, load_network

SWITCH = Topology.switch(num_ranks=8, bandwidth="100Gbps", latency="2us")
DGX = load_network("dgx-h100").topology(16)
PROFILE = Profile.uniform(num_buckets=3, bucket_bytes=MIB, seconds_per_bucket=0.001)

COUNTED: list[dict[str, Any]] = [
    {"overhead": "3us"}, {"arrival_overhead": "0us"}, {"reduction_bandwidth": "10GB/s"},
    {"overhead": "3us", "reduction_bandwidth": "10GB/s"},
]  # fmt: skip
IN_NODES: list[dict[str, Any]] = [
    {"protocol": "LL"}, {"protocol": "LL128", "overhead": "1us"}, {"model": "nccl"},
    {"transport_model": "nccl"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("topology", "counted"), [*((SWITCH, one) for one in COUNTED), *((DGX, one) for one in IN_NODES)]
)
def test_a_bucket_takes_what_a_collective_takes_of_which_as_much_is_counted(topology, counted):
    one = simulate("ring", nbytes=MIB, topology=topology, itemsize=4, **counted)

    step = simulate_step(PROFILE, topology=topology, bucket_cap_mb=1, strategy="after_backward", **counted)

    assert step.time_ps == PROFILE.compute_ps + 3 * one.time_ps
    assert step.engine == one.engine
    assert (step.model, step.transport_model) == (one.model, one.transport_model)


@pytest.mark.parametrize(
    ("counted", "error", "message"),
    [
        ({"model": "nccl", "overhead": "1us"}, NotSupportedError, "take model='links'"),
        ({"model": "nccl", "transport_model": "gloo"}, NotSupportedError, "another transport's"),
        ({"model": "guess"}, ValueError, "model must be"),
        ({"transport_model": "glo"}, ValueError, "ideal, gloo, nccl, shm"),
        ({"overhead": "much"}, UnitError, "overhead"),
        ({"protocol": "LL64"}, ValueError, "LL128"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(counted, error, message):
    with pytest.raises(error, match=message):
        simulate_step(PROFILE, topology=DGX, **counted)
