"""What does not run on rank threads says so by name, and at once."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.rpc

from collectives.errors import NotSupportedError
from collectives.virtual import run
from sim.errors import RankError, SimulationError
from sim.topology import Topology

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does


SWITCH = Topology.switch(num_ranks=2, bandwidth="100Gbps", latency="2us")


def remote_calls(path):
    torch.distributed.rpc.init_rpc(f"worker {dist.get_rank()}", rank=dist.get_rank(), world_size=2)


def checkpoint_in_a_thread(path):
    dcp.async_save({"weight": torch.ones(2)}, checkpoint_id=path).result()


def profilers_at_once(path):
    with torch.profiler.profile():
        dist.barrier()


@pytest.mark.parametrize(
    ("work", "kind", "reason"),
    [
        (remote_calls, NotSupportedError, "rpc answers from threads of its own.* torchrun"),
        (checkpoint_in_a_thread, SimulationError, "only in its own thread, not in 'AsyncCheckpoint"),
        (profilers_at_once, NotSupportedError, "one for all ranks of a virtual run, and rank 0 uses it"),
    ],
)
def test_what_cannot_run_is_refused(tmp_path, work, kind, reason):
    def task(rank):
        dist.init_process_group("gloo")
        work(tmp_path)

    with pytest.raises(RankError, match=reason) as caught:
        run(task, network=SWITCH)

    assert isinstance(caught.value.__cause__, kind)


def test_one_rank_at_a_time_may_profile():
    def task(rank):
        dist.init_process_group("gloo")
        for turn in range(2):
            if rank == turn:
                with torch.profiler.profile() as profile:
                    dist.barrier()
                    torch.ones(3) + 1
            else:
                dist.barrier()
            dist.barrier()
        return "aten::add" in {event.name for event in profile.events()}

    assert (
        run(task, network=Topology.switch(num_ranks=2, bandwidth="100Gbps", latency="2us")).results
        == [True] * 2
    )
