"""Every system as rank threads in virtual time, on two networks and under two names of the backend."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from collectives.virtual import run
from sim.topology import Topology
from tests.systems.catalogue import SYSTEMS
from tests.systems.system import counted_calls, difference
from tests.systems.training import NUM_STEPS, alone, network, part_of, sgd, train, whole

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

FAST = {"bandwidth": "400Gbps", "latency": "1us"}
SLOW = {
    "intra_bandwidth": "1GB/s",
    "intra_latency": "50us",
    "nics_per_node": 1,
    "nic_bandwidth": "3MB/s",
    "nic_latency": "1ms",
}


def run_system(system, topology, backend):
    def work(rank):
        dist.init_process_group(backend)
        try:
            return system.run(rank, system.world_size)
        finally:
            dist.destroy_process_group()

    with counted_calls() as calls:
        ran = run(work, network=topology)
    system.check(ran.results, calls.values())
    return ran


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_gives_what_one_process_gives_on_any_network(name):
    system = SYSTEMS[name]
    per_node = 2 if system.world_size % 2 == 0 else 1
    nodes = Topology.nodes(num_nodes=system.world_size // per_node, ranks_per_node=per_node, **SLOW)

    fast = run_system(system, Topology.switch(num_ranks=system.world_size, **FAST), "nccl")
    slow = run_system(system, nodes, "gloo")

    assert difference(fast.results, slow.results) == 0.0
    assert fast.seconds < slow.seconds


@pytest.mark.parametrize("name", ["checkpoint", "fsdp2", "pipeline interleaved", "functions: messages"])
def test_times_repeat_to_the_picosecond(name):
    system = SYSTEMS[name]
    topology = Topology.switch(num_ranks=system.world_size, **FAST)

    first, second = (run_system(system, topology, "nccl") for _ in range(2))

    assert first.times_ps == second.times_ps


def test_who_trains_on_a_part_of_the_batch_or_not_at_all_gets_something_else():
    model = network()
    untouched = whole(model.parameters())
    train(model, sgd(model.parameters()), *part_of(0, 2))

    for other in (untouched, whole(model.parameters())):
        assert difference(other, alone()) > 1e-2
    assert NUM_STEPS > 2
