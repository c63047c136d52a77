"""The testbed backend between processes: our collectives over an inner Gloo group."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from collectives.communicators.connection import connect
from collectives.errors import CollectiveTimeoutError, NotSupportedError, UnknownAlgorithmError
from collectives.torch_backend import TestbedOptions

pytestmark = pytest.mark.distributed

OPERATIONS = ("SUM", "AVG", "MIN", "MAX", "PRODUCT")


def every_collective(rank, world_size):
    group = dist.new_group(backend="testbed", timeout=timedelta(seconds=20))
    results = {"backend": dist.get_backend(group)}
    for name in OPERATIONS:
        tensor = torch.arange(5.0) + rank
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name), group=group)
        results[name] = tensor.tolist()
    tensor = torch.full((3,), float(rank))
    dist.broadcast(tensor, src=world_size - 1, group=group)
    results["broadcast"] = tensor.tolist()
    parts = [torch.empty(2, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(parts, torch.tensor([rank, rank * rank]), group=group)
    results["all_gather"] = [part.tolist() for part in parts]
    objects = [None] * world_size
    dist.all_gather_object(objects, "x" * rank, group=group)
    results["objects"] = objects
    dist.barrier(group)
    dist.destroy_process_group(group)
    return results


@pytest.mark.costly
@pytest.mark.parametrize("world_size", [1, 3])
def test_every_collective_gives_its_result_on_every_rank(pool, world_size):
    ranks = range(world_size)
    rows = torch.stack([torch.arange(5.0) + rank for rank in ranks])
    expected = {
        "backend": "testbed",
        "SUM": rows.sum(0).tolist(),
        "AVG": rows.mean(0).tolist(),
        "MIN": rows.amin(0).tolist(),
        "MAX": rows.amax(0).tolist(),
        "PRODUCT": rows.prod(0).tolist(),
        "broadcast": [world_size - 1.0] * 3,
        "all_gather": [[rank, rank * rank] for rank in ranks],
        "objects": ["x" * rank for rank in ranks],
    }

    assert pool.run(every_collective, world_size) == [expected] * world_size


def several_groups(rank, world_size):
    options = TestbedOptions(algorithm="tree")
    groups = [dist.new_group(ranks, backend="testbed", pg_options=options) for ranks in ([0, 2], [1, 2])]
    sums = []
    for members, group in zip(([0, 2], [1, 2]), groups, strict=True):
        if rank in members:
            tensor = torch.tensor([10.0**rank])
            dist.all_reduce(tensor, group=group)
            sums.append(tensor.item())
    return sums


def test_sub_groups_do_not_mix(pool):
    assert pool.run(several_groups, 3) == [[101.0], [110.0], [101.0, 110.0]]


def several_in_flight(rank, world_size):
    group = dist.new_group(backend="testbed")
    communicators = [connect(group, algorithm) for algorithm in ("native", "tree")]
    tensors = [torch.full((1000,), float(rank + n)) for n in range(6)]
    works = [
        communicators[n % 2].all_reduce(tensor, async_op=True) for n, tensor in enumerate(tensors[:4])
    ] + [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors[4:]]
    for work in reversed(works):
        work.wait()
    return [tensor.unique().tolist() for tensor in tensors]


def test_collectives_of_several_communicators_are_in_flight_at_once(pool):
    expected = [[0.0 + 1.0 + 2 * n] for n in range(6)]

    assert pool.run(several_in_flight, 2) == [expected] * 2


def missing_rank(rank, world_size):
    group = dist.new_group(backend="testbed", timeout=timedelta(seconds=1))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["rank 0 has given up"])
        return None
    try:
        dist.all_reduce(torch.ones(4), group=group)
    except CollectiveTimeoutError as error:
        return str(error)
    finally:
        store.set("rank 0 has given up", "")


def test_a_rank_that_never_calls_is_named_after_the_groups_timeout(pool):
    message = pool.run(missing_rank, 2)[0]

    assert "all_reduce #0 (ring" in message
    assert "rank 1 did not take part" in message


def algorithms_of_the_environment(rank, world_size):
    used = []
    try:
        for name in ("tree", "", "rign"):
            os.environ["TESTBED_ALGORITHM"] = name
            for options in (None, TestbedOptions("naive")) if name != "rign" else (None,):
                group = dist.new_group(backend="testbed", pg_options=options)
                tensor = torch.ones(8)
                dist.all_reduce(tensor, group=group)
                selector = group.communicator(tensor.device).launcher.selector
                used.append((str(selector.select("all_reduce", 32)), tensor[0]))
    except UnknownAlgorithmError as error:
        used.append(str(error))
    finally:
        del os.environ["TESTBED_ALGORITHM"]
    return used


def transports_of_the_environment(rank, world_size):
    used = []
    try:
        for name in ("shm", "gloo", "", "smh"):
            os.environ["TESTBED_TRANSPORT"] = name
            group = dist.new_group(backend="testbed")
            tensor = torch.ones(8)
            dist.all_reduce(tensor, group=group)
            launcher = group.communicator(tensor.device).launcher
            algorithm = str(launcher.selector.select("all_reduce", 32))
            used.append((type(launcher.transport).__name__, algorithm, tensor[0].item()))
    except NotSupportedError as error:
        used.append(str(error))
    finally:
        del os.environ["TESTBED_TRANSPORT"]
    return used


def test_the_environment_chooses_the_transport_between_processes(pool):
    *used, error = pool.run(transports_of_the_environment, 2)[0]

    memory, gloo = ("SharedMemoryTransport", "ring", 2.0), ("GlooTransport", "ring", 2.0)
    assert used == [memory, gloo, memory]
    assert (
        error == "environment variable TESTBED_TRANSPORT: there is no transport 'smh'; expected gloo or shm"
    )


def test_the_environment_chooses_the_algorithm_of_groups_that_choose_none(pool):
    *used, error = pool.run(algorithms_of_the_environment, 2)[0]

    assert used == [("tree", 2.0), ("naive", 2.0), ("ring", 2.0), ("naive", 2.0)]
    assert error.startswith("environment variable TESTBED_ALGORITHM: ")
    assert "ring" in error
