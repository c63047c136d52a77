"""Lazily negated and conjugated views: tensors whose values are not those in their memory."""

import os

import pytest
import torch
import torch.distributed as dist

from collectives.communicators.connection import connect
from collectives.virtual import run_virtual
from sim.topology import Topology


def negated(value, count=4):
    """Return a tensor of *count* times ``-value``, whose memory holds *value*."""
    return torch._neg_view(torch.full((count,), float(value)))


def imaginary(value, count=4):
    """Return a tensor of *count* times ``-value``, as computing with complex numbers makes them."""
    return torch.full((count,), complex(0, value)).conj().imag


def every_call(group, make):
    """Return what every collective and message of two ranks puts into tensors of *make*, of such tensors."""
    rank = dist.get_rank(group)
    mine = rank + 1
    found = {}

    for name, call in {
        "all_reduce": dist.all_reduce,
        "broadcast": lambda tensor, group: dist.broadcast(tensor, 0, group),
        "reduce": lambda tensor, group: dist.reduce(tensor, 0, group=group),
    }.items():
        tensor = make(mine)
        call(tensor, group=group)
        found[name] = tensor.tolist()

    parts = [make(9) for _ in range(2)]
    dist.all_gather(parts, make(mine), group)
    found["all_gather"] = [part.tolist() for part in parts]

    parts = [make(9) for _ in range(2)]
    dist.gather(make(mine), parts if rank == 0 else None, 0, group)
    found["gather"] = [part.tolist() for part in parts]

    part = make(9)
    dist.scatter(part, [make(3), make(4)] if rank == 0 else None, 0, group)
    found["scatter"] = part.tolist()

    part = make(9, 2)
    dist.reduce_scatter(part, [make(mine, 2), make(mine, 2)], group=group)
    found["reduce_scatter"] = part.tolist()

    whole = make(9)
    dist.all_to_all_single(whole, make(mine), group=group)
    found["all_to_all_single"] = whole.tolist()

    parts = [make(9, 2) for _ in range(2)]
    dist.all_to_all(parts, list(make(mine).split(2)), group)
    found["all_to_all"] = [part.tolist() for part in parts]

    for name, source in {"recv": 0, "recv from any": None}.items():
        tensor = make(9)
        if rank == 0:
            dist.send(make(5), 1, group)
        else:
            dist.recv(tensor, source, group)
        found[name] = tensor.tolist()
    return found


def values_of_every_call(rank):
    mine, untouched = -1.0 - rank, -9.0
    return {
        "all_reduce": [-3.0] * 4,
        "broadcast": [-1.0] * 4,
        "reduce": [-3.0 if rank == 0 else mine] * 4,
        "all_gather": [[-1.0] * 4, [-2.0] * 4],
        "gather": [[-1.0] * 4, [-2.0] * 4] if rank == 0 else [[untouched] * 4] * 2,
        "scatter": [-3.0 - rank] * 4,
        "reduce_scatter": [-3.0] * 2,
        "all_to_all_single": [-1.0, -1.0, -2.0, -2.0],
        "all_to_all": [[-1.0] * 2, [-2.0] * 2],
        "recv": [-5.0 if rank else untouched] * 4,
        "recv from any": [-5.0 if rank else untouched] * 4,
    }


def in_process(rank, world_size, carrier, function, *arguments):
    os.environ["TESTBED_TRANSPORT"] = carrier
    try:
        return function(dist.new_group(backend="testbed"), *arguments)
    finally:
        del os.environ["TESTBED_TRANSPORT"]


CARRIERS = pytest.mark.parametrize("carrier", ["shm", "gloo"])


@CARRIERS
@pytest.mark.distributed
@pytest.mark.parametrize("make", [negated, imaginary])
def test_every_call_of_processes_takes_the_values_of_lazily_negated_tensors(pool, make, carrier):
    expected = [values_of_every_call(rank) for rank in range(2)]

    assert pool.run(in_process, 2, carrier, every_call, make) == expected


@pytest.mark.parametrize("make", [negated, imaginary])
def test_every_call_of_rank_threads_takes_the_values_of_lazily_negated_tensors(make):
    switch = Topology.switch(num_ranks=2, bandwidth="100Gbps", latency="2us")

    def run(rank):
        dist.init_process_group("testbed")
        return every_call(dist.group.WORLD, make)

    assert run_virtual(run, switch).results == [values_of_every_call(rank) for rank in range(2)]


def broadcast_of_conjugates(group):
    rank, communicator = dist.get_rank(group), connect(group)
    found = []
    for is_lazy in ((True, True), (True, False), (False, True)):
        tensor = torch.full((3,), complex(rank, rank + 1))
        tensor = tensor.conj() if is_lazy[rank] else tensor
        communicator.broadcast(tensor, 0)
        found.append(tensor.tolist())
    return found


@CARRIERS
@pytest.mark.distributed
def test_a_broadcast_takes_the_values_of_lazily_conjugated_tensors_where_only_one_side_has_some(
    pool, carrier
):
    expected = [[-1j] * 3, [-1j] * 3, [1j] * 3]

    assert pool.run(in_process, 2, carrier, broadcast_of_conjugates) == [expected] * 2
