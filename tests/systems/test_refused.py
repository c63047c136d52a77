"""Systems that do not run on rank threads: refused by name and at once; some once did not, and run."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.rpc

from collectives import NotSupportedError
from collectives.virtual import run
from sim import RankError, Topology

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does


SWITCH = Topology.switch(num_ranks=2, bandwidth="100Gbps", latency="2us")


def test_remote_calls_are_refused():
    def task(rank):
        dist.init_process_group("gloo")
        torch.distributed.rpc.init_rpc(f"worker {dist.get_rank()}", rank=dist.get_rank(), world_size=2)

    with pytest.raises(RankError, match=r"rpc answers from threads of its own.* torchrun") as caught:
        run(task, network=SWITCH)

    assert isinstance(caught.value.__cause__, NotSupportedError)


def test_a_checkpoint_is_saved_in_a_thread_of_each_rank(tmp_path):
    def task(rank):
        dist.init_process_group("gloo")
        dcp.async_save({"weight": torch.full((2,), 3.0)}, checkpoint_id=tmp_path).result()
        loaded = {"weight": torch.zeros(2)}
        dcp.load(loaded, checkpoint_id=tmp_path)
        return loaded["weight"].tolist()

    assert run(task, network=SWITCH).results == [[3.0, 3.0]] * 2


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

    assert run(task, network=SWITCH).results == [True] * 2
