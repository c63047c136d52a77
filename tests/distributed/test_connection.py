import os
import signal
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from collectives import CollectiveError, NotSupportedError, connect

pytestmark = pytest.mark.distributed


def without_a_group(rank, world_size):
    dist.destroy_process_group()
    with pytest.raises(NotSupportedError, match="init_process_group"):
        connect(algorithm="ring")


def test_without_a_process_group_the_caller_is_told_to_make_one(pool):
    pool.run(without_a_group, 1)


def chosen(rank, world_size, machines):
    """Return what carries calls by default, where rank r runs on the machine ``machines[r]``."""
    with mock.patch("platform.machine", return_value=machines[rank]):
        communicator = connect(timeout=30)
    tensor = torch.full((5,), float(rank))
    communicator.all_reduce(tensor)
    assert tensor.tolist() == [sum(range(world_size))] * 5
    return communicator.carrier


@pytest.mark.parametrize(
    ("machines", "carrier"),
    [(["x86_64"] * 2, "shm"), (["x86_64", "aarch64"], "native"), (["x86_64"], "native")],
)
def test_by_default_ranks_of_one_host_share_memory_where_all_of_them_can(pool, machines, carrier):
    assert set(pool.run(chosen, len(machines), machines)) == {carrier}


def hierarchical(rank, world_size, local_world_sizes):
    said = []
    for size in local_world_sizes:
        try:
            with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=size if rank == 0 else "another"):
                if not size:
                    del os.environ["LOCAL_WORLD_SIZE"]
                communicator = connect(algorithm="hierarchical", timeout=30)
        except NotSupportedError as error:
            said.append(str(error))
            continue
        tensor = torch.full((50,), float(rank))
        communicator.all_reduce(tensor)
        assert tensor.tolist() == [sum(range(world_size))] * 50
        said.append(str(communicator.launcher.selector.select("all_reduce", 8)))
    return said


def channels(rank, world_size):
    said = []
    for size in ("", "2"):
        with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE=size):
            communicator = connect(algorithm="ring:channels=2", timeout=30)
        said.append(str(communicator.launcher.selector.select("all_reduce", 8)))
    return said


def test_what_can_do_without_nodes_does_where_nobody_knows_them(pool):
    for said in pool.run(channels, 2):
        assert said == ["ring:channels=2", "ring:channels=2,ranks_per_node=2"]


@pytest.mark.costly
def test_nodes_are_as_large_as_the_launcher_told_rank_0(pool):
    for said in pool.run(hierarchical, 3, ["2", "3", "", "many"]):
        assert said[:2] == ["hierarchical:ranks_per_node=2", "hierarchical:ranks_per_node=3"]
        assert "LOCAL_WORLD_SIZE is not set" in said[2]
        assert "LOCAL_WORLD_SIZE is 'many'" in said[3]
        assert all("or give hierarchical:ranks_per_node=N" in refusal for refusal in said[2:])


def message_to_one_that_is_killed(rank, world_size):
    store = dist.distributed_c10d._get_default_store()
    communicator = connect(algorithm="ring", timeout=4.0)
    communicator.barrier()
    if rank == 1:
        store.wait(["rank 0 sends"], timedelta(seconds=45))
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 2:
        communicator.recv(torch.ones(5), 0)
        return ""
    work = communicator.all_reduce(torch.ones(1000), async_op=True)
    store.set("rank 0 sends", "")
    try:
        communicator.send(torch.ones(5), 1)
    except CollectiveError as error:
        return str(error)
    work.wait()
    return "no error"


def test_a_message_to_a_rank_that_is_killed_fails_in_time_and_names_it(pool):
    outcomes = pool.run_outcomes(message_to_one_that_is_killed, 3)

    assert "rank 1 did not take part" in outcomes[0]
