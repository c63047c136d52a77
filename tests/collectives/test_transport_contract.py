from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from collectives import NotSupportedError, verify
from collectives.connection import connect
from collectives.program_communicator import ProgramCommunicator
from collectives.reports import StoreReports
from collectives.transports.nccl import NcclTransport
from collectives.transports.simulated import SimulatedExchange, SimulatedTransport
from collectives.transports.threaded import run_threads
from sim import Cluster, Topology
from tests.collectives.transport_contract import play, two_communicators_do_not_mix
from tests.distributed.pool import WorkerPool


def over_threads(
    function: Callable[..., Any], world_size: int, algorithm: str, pool: WorkerPool
) -> list[Any]:
    return run_threads(lambda transport: function(ProgramCommunicator(transport, algorithm)), world_size)


def in_virtual_time(
    function: Callable[..., Any], world_size: int, algorithm: str, pool: WorkerPool
) -> list[Any]:
    topology = Topology.switch(num_ranks=world_size, bandwidth="10Gbps", latency="1us")
    cluster = Cluster(topology, compute={"poll": 10_000_000})
    exchange = SimulatedExchange(cluster.network)

    def run(rank: int) -> Any:
        rank_thread = Cluster.current()
        assert rank_thread is not None
        transport = SimulatedTransport(exchange, rank, rank_thread)
        return function(ProgramCommunicator(transport, algorithm))

    return cluster.run(run)


def over_gloo(function: Callable[..., Any], world_size: int, algorithm: str, pool: WorkerPool) -> list[Any]:
    return pool.run(_on_gloo, world_size, algorithm)


def over_streams(
    function: Callable[..., Any], world_size: int, algorithm: str, pool: WorkerPool
) -> list[Any]:
    return pool.run(_on_streams, world_size, algorithm)


def _on_streams(rank: int, world_size: int, algorithm: str) -> Any:
    group = dist.group.WORLD
    assert group is not None
    reports = StoreReports(group.get_group_store(), "streams", rank, world_size)
    transport = NcclTransport(group, torch.device("cpu"), reports.explain)
    return play(ProgramCommunicator(transport, algorithm))


def _on_gloo(rank: int, world_size: int, algorithm: str) -> Any:
    return play(connect(algorithm=algorithm, timeout=30))  # type: ignore[arg-type]


TRANSPORTS = [
    pytest.param(over_threads, id="threads"),
    pytest.param(in_virtual_time, id="simulated"),
    pytest.param(over_gloo, id="gloo", marks=pytest.mark.distributed),
    pytest.param(over_streams, id="nccl's, on the CPU", marks=pytest.mark.distributed),
]
ALGORITHMS = (
    "naive",
    "bucket",
    "bucket:colors=4",
    "chain",
    "direct",
    "double_binary_tree",
    "halving_doubling",
    "hierarchical:ranks_per_node=2,outer=tree",
    "one_shot",
    "ring:channels=3",
    "recursive_doubling",
    "ring",
    "swing",
    "tree",
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("over", TRANSPORTS)
def test_a_transport_keeps_the_contract(
    over: Callable[..., list[Any]], world_size: int, algorithm: str, pool: WorkerPool
) -> None:
    try:
        verify(algorithm, world_size)
    except NotSupportedError as refusal:
        pytest.skip(str(refusal))
    results = over(play, world_size, algorithm, pool)

    assert results == over_threads(play, world_size, algorithm, pool)
    assert all(result == results[0] for result in results)


@pytest.mark.distributed
def test_communicators_on_one_gloo_group_do_not_mix(pool: WorkerPool) -> None:
    pool.run(_two_on_gloo, 3)


def _two_on_gloo(rank: int, world_size: int) -> None:
    two_communicators_do_not_mix(connect(algorithm="ring"), connect(algorithm="ring"))


@pytest.mark.distributed
def test_native_keeps_the_contract_for_the_dtypes_that_gloo_has(pool: WorkerPool) -> None:
    pool.run(_native_on_gloo, 3)


def _native_on_gloo(rank: int, world_size: int) -> None:
    from tests.collectives import transport_contract as contract

    communicator = connect(algorithm="native")
    for scenario in contract.SCENARIOS:
        if scenario is not contract.all_reduce_sums_every_dtype_and_size:
            scenario(communicator)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        tensor = contract.part(rank, 50, dtype)
        communicator.all_reduce(tensor)
        assert torch.equal(tensor, contract.whole(world_size, 50, dtype))
