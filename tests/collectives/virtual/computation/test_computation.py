"""Computation in virtual time: explicit charges, profiles, measured time; overlap to the picosecond."""

import time
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import ddp
from collectives.errors import NotSupportedError
from collectives.virtual import compute, run
from collectives.virtual.computation import Charges, ComputeModel, Measured, Recorded, parse_compute
from sim.cluster import Cluster
from sim.errors import DeviceFileError, RankError
from sim.scenario.conditions import Straggler
from sim.topology import Topology
from sim.trace import Trace
from sim.units import parse_bandwidth, transfer_ps
from tests.given import switch


def test_a_script_can_say_itself_how_long_it_computes():
    trace = Trace()

    def work(rank):
        compute("1.5us")
        compute(1e-6, "loss")
        return Cluster.current().computed_ps

    outcome = run(work, network=switch(2), trace=trace, conditions=[Straggler(1, factor=3)])

    assert outcome.times_ps == tuple(outcome.results) == (2_500_000, 7_500_000)
    assert [(span.name, span.start_ps, span.end_ps) for span in trace.spans if span.rank == 1] == [
        ("compute", 0, 4_500_000),
        ("loss", 4_500_000, 7_500_000),
    ]


def test_outside_of_a_cluster_saying_how_long_something_takes_does_nothing():
    compute("1s")


def test_a_time_that_cannot_be_read_is_refused_with_an_example():
    with pytest.raises(RankError, match='expected a time such as "2us"'):
        run(lambda rank: compute("soon"), network=switch(1))


def test_charges_by_name_hold_for_the_run_only():
    def work(rank):
        Cluster.current().charge("forward")
        Cluster.current().charge("something else")

    assert run(work, network=switch(1), compute=Charges({"forward": 123})).times_ps == (123,)


def two_layers(kind):
    """Return a function that trains a model of two layers and returns when each step began."""

    def work(rank):
        dist.init_process_group()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
        trained = {"ours": ddp.DistributedDataParallel, "torch": DistributedDataParallel}.get(
            kind, lambda m: m
        )(model)
        began = []
        for _ in range(4):
            began.append(Cluster.current().now_ps())
            trained(torch.ones(2, 8)).sum().backward()
        return began, Cluster.current().computed_ps

    return work


PROFILE = {"forward": 5000, "gradient:1.weight": 300, "gradient:0.weight": 20, "backward": 1}


@pytest.mark.parametrize("kind", ["plain", "torch", "ours"])
def test_a_profile_charges_the_forward_pass_and_each_gradient_whoever_reduces_them(kind):
    outcome = run(two_layers(kind), network=switch(2), compute=Recorded(PROFILE))

    assert [computed for _, computed in outcome.results] == [4 * sum(PROFILE.values())] * 2


def test_a_profile_takes_our_own_data_parallel_as_long_as_the_same_charges():
    recorded, charged = (
        run(two_layers("ours"), network=switch(2), compute=model)
        for model in (Recorded(PROFILE), Charges(PROFILE))
    )

    assert recorded.results == charged.results


def test_a_profile_of_another_model_is_refused_with_what_differs():
    model = Recorded({"gradient:0.weight": 1, "gradient:1.weight": 1, "gradient:1.bias": 1}, "other")

    with pytest.raises(RankError, match=r"profile other .* called no module .* differs in 1.bias"):
        run(two_layers("plain"), network=switch(1), compute=model)


def test_a_profile_of_a_model_whose_parameters_are_sharded_is_refused():
    def work(rank):
        dist.init_process_group()
        model = nn.Sequential(nn.Linear(8, 8, bias=False))
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        model(torch.ones(2, 8))

    with pytest.raises(RankError, match=r"0.weight is sharded; use a roofline"):
        run(work, network=switch(2), compute=Recorded({"gradient:0.weight": 1}))


def test_measured_computation_takes_the_time_of_the_thread_and_none_of_it_twice():
    def work(rank):
        dist.init_process_group()
        began_ns, began_ps = time.thread_time_ns(), Cluster.current().now_ps()
        while time.thread_time_ns() - began_ns < 20e6:
            pass
        dist.barrier()
        return (
            Cluster.current().now_ps() - began_ps,
            Cluster.current().computed_ps,
            Cluster.current().waited_ps,
        )

    outcome = run(work, network=switch(2), compute=Measured(10))

    for (passed, computed, waited), end in zip(outcome.results, outcome.times_ps, strict=True):
        assert passed >= 200 * 10**9  # 20 ms, ten times
        assert computed + waited <= end
    assert not Measured().repeats


def test_models_have_names_that_the_command_line_knows(tmp_path):
    (tmp_path / "mine.toml").write_text('schema = 1\nmemory_bandwidth = "1GB/s"\n')
    known = {
        "h100": "roofline of h100",
        "a100:tf32": "roofline of a100 with tf32",
        "h100:fa1_2023": "roofline of h100 with fa1_2023",
        "a100-40gb:fa2:tf32": "roofline of a100-40gb with fa2 with tf32",
        str(tmp_path / "mine.toml"): "roofline of mine",
        "measured": "measured CPU time × 1",
        "measured:0.5": "measured CPU time × 0.5",
        "profile:gpt": "profile gpt",
    }

    assert {text: parse_compute(text, lambda name: PROFILE).name for text in known} == known
    assert parse_compute("none") is None
    assert all(isinstance(parse_compute(text, lambda name: PROFILE), ComputeModel) for text in known)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "h10",
            r"unknown device 'h10' \(did you mean 'h100'\?\).*; or else measured, measured:FACTOR, profile:",
        ),
        ("measured:fast", "expected a factor such as 0.1, got 'fast'"),
        ("measured:-1", "above 0, such as 0.1, got -1"),
        ("profile:gpt2-xl", "no profiles can be read here"),
        ("v100:tf32", "v100 has no tfloat32"),
        ("h100:fa9", "h100:fa9: expected one of tf32, fa1_2023, fa2 behind h100"),
    ],
)
def test_what_is_no_model_is_refused_with_what_is(text, said):
    with pytest.raises((DeviceFileError, NotSupportedError), match=said):
        parse_compute(text)


def test_a_device_file_that_cannot_be_read_is_not_told_of_other_models(tmp_path):
    path = tmp_path / "gpu.toml"
    path.write_text("schema = [")

    with pytest.raises(DeviceFileError, match=r"not a TOML file: [^;]*$"):
        parse_compute(str(path))


LAYERS, NBYTES, ALPHA_PS = 6, 1 << 20, 5_000_000


class Layer(nn.Module):
    """Adds its parameter of 1 MiB: 50 us forward and 100 us backward."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(NBYTES // 4))
        self.weight.register_hook(lambda grad: compute("100us"))

    def forward(self, x):
        compute("50us")
        return x + self.weight.sum()


def ring_ps(nbytes, num_ranks, bandwidth):
    """Return what a ring takes on an idle switch, rounded up in each of its steps."""
    return 2 * (num_ranks - 1) * (ALPHA_PS + transfer_ps(nbytes // num_ranks, bandwidth))


@pytest.mark.parametrize(
    ("bandwidth", "us"),
    [
        ("1GB/s", "10017.18"),
        ("5GB/s", "2467.44"),
        ("10GB/s", "1523.72"),
        ("40GB/s", "969.32"),
        ("200GB/s", "937.86"),
    ],
)
def test_a_steady_step_of_torchs_data_parallel_is_the_closed_formula_of_overlap(bandwidth, us):
    num_ranks = 4

    def work(rank):
        dist.init_process_group()
        model = DistributedDataParallel(nn.Sequential(*(Layer() for _ in range(LAYERS))), bucket_cap_mb=1)
        began = []
        for _ in range(4):
            began.append(Cluster.current().now_ps())
            model(torch.zeros(1)).sum().backward()
        return [*began, Cluster.current().now_ps()]

    topology = Topology.switch(num_ranks=num_ranks, bandwidth=bandwidth, latency="2500ns")
    outcome = run(work, network=topology)

    forward_ps, backward_ps = LAYERS * 50_000_000, 100_000_000
    reduce_ps = ring_ps(NBYTES, num_ranks, parse_bandwidth(bandwidth))
    ends_ps = forward_ps
    for ready in range(1, LAYERS + 1):  # a bucket is reduced when it is ready and the one before is done
        ends_ps = max(ends_ps, forward_ps + ready * backward_ps) + reduce_ps
    assert [after - before for before, after in pairwise(outcome.results[0])][2:] == [ends_ps, ends_ps]
    assert len({tuple(result) for result in outcome.results}) == 1
    assert round(ends_ps / 10**6, 2) == float(us)
