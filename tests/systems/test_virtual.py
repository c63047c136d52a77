"""Every system as rank threads in virtual time, on two networks and under two names of the backend."""

import pytest
import torch.distributed as dist

from collectives.virtual import run
from sim.topology import Topology
from tests.systems.catalogue import SYSTEMS
from tests.systems.system import counted_calls, difference
from tests.systems.training import NUM_STEPS, alone, network, part_of, sgd, train, whole

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

SLOW = {
    "intra_bandwidth": "1GB/s", "intra_latency": "50us", "nics_per_node": 1, "nic_bandwidth": "3MB/s",
    "nic_latency": "1ms",
}  # fmt: skip


def network_of(system, backend):
    """Return a fast network for the one name of the backend, and a slow one of nodes for the other."""
    if backend == "nccl":
        return Topology.switch(num_ranks=system.world_size, bandwidth="400Gbps", latency="1us")
    per_node = 2 if system.world_size % 2 == 0 else 1
    return Topology.nodes(num_nodes=system.world_size // per_node, ranks_per_node=per_node, **SLOW)


def run_system(name, backend):
    system = SYSTEMS[name]

    def work(rank):
        dist.init_process_group(backend)
        try:
            return system.run(rank, system.world_size)
        finally:
            dist.destroy_process_group()

    with counted_calls() as calls:
        ran = run(work, network=network_of(system, backend))
    system.check(ran.results, calls.values())
    return ran


# Where few points are wanted, networks take turns.
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        (name, backend)
        for turn, name in enumerate(SYSTEMS)
        for backend in (("nccl", "gloo"), ("gloo", "nccl"))[turn % 2]
    ],
)
def test_it_gives_what_one_process_gives_on_any_network(name, backend):
    run_system(name, backend)


@pytest.mark.parametrize("name", ["checkpoint", "fsdp2", "pipeline interleaved", "functions: messages"])
def test_times_repeat_to_the_picosecond_and_a_slow_network_changes_nothing_else(name):
    first, second, slow = (run_system(name, backend) for backend in ("nccl", "nccl", "gloo"))

    assert first.times_ps == second.times_ps
    assert difference(first.results, slow.results) == 0.0
    assert first.seconds < slow.seconds


def test_who_trains_on_a_part_of_the_batch_or_not_at_all_gets_something_else():
    model = network()
    untouched = whole(model.parameters())
    train(model, sgd(model.parameters()), *part_of(0, 2))

    for other in (untouched, whole(model.parameters())):
        assert difference(other, alone()) > 1e-2
    assert NUM_STEPS > 2
