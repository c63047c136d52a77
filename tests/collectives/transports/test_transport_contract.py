from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

from collectives import Communicator, NotSupportedError, connect, verify
from collectives.communicators.programs import ProgramLauncher
from collectives.execution.transport_model import transport_model
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.transports.nccl import NcclTransport
from collectives.transports.store_reports import StoreReports
from collectives.transports.threaded import run_threads
from collectives.virtual.progress import RankProgress
from collectives.virtual.transport import SimulatedTransport
from sim import Cluster
from tests.collectives.communicators import message_contract, tensor_contract
from tests.collectives.transports.transport_contract import SCENARIOS, Scenario, play
from tests.distributed.hosts import as_if_on_host
from tests.distributed.pool import WorkerPool
from tests.given import switch

Over = Callable[[Sequence[Scenario], int, str, WorkerPool], list[Any]]
"""Play scenarios on so many ranks by an algorithm; return what each rank returned."""


def over_threads(scenarios: Sequence[Scenario], world_size: int, algorithm: str, pool=None) -> list[Any]:
    return run_threads(
        lambda transport: play(Communicator(ProgramLauncher(transport, algorithm)), scenarios),
        world_size,
        timeout=20,
    )


def in_virtual_time(model: str) -> Over:
    def over(scenarios, world_size, algorithm, pool):
        cluster = Cluster(switch(world_size, "10Gbps", "1us"), compute={"poll": 10_000_000})
        meeting_point = MeetingPoint(cluster.network, transport_model=transport_model(model))
        progress = {}

        def run(rank):
            rank_thread = Cluster.current()
            assert rank_thread is not None
            of_rank = progress.setdefault(rank, RankProgress(rank_thread))
            transport = SimulatedTransport(meeting_point, rank, rank_thread, progress=of_rank)
            return play(Communicator(ProgramLauncher(transport, algorithm)), scenarios)

        return cluster.run(run)

    return over


def in_processes(play_on_rank: Callable[..., Any]) -> Over:
    return lambda scenarios, world_size, *more: more[-1].run(play_on_rank, world_size, scenarios, *more[:-1])


def _on_streams(rank: int, world_size: int, scenarios: Sequence[Scenario], algorithm: str):
    group = dist.group.WORLD
    reports = StoreReports(group.get_group_store(), "streams", rank, world_size)
    transport = NcclTransport(group, torch.device("cpu"), reports.explain)
    return play(Communicator(ProgramLauncher(transport, algorithm)), scenarios)


def _on_gloo(rank: int, world_size: int, scenarios: Sequence[Scenario], algorithm: str):
    return play(connect(algorithm=algorithm, timeout=30), scenarios)


def _natively(rank: int, world_size: int, scenarios: Sequence[Scenario], algorithm: str):
    return play(connect(algorithm="native", timeout=30), scenarios)


def _in_shared_memory(rank: int, world_size: int, scenarios: Sequence[Scenario], algorithm: str):
    return play(connect(algorithm=algorithm, transport="shm", timeout=30), scenarios)


def _on_two_hosts(rank: int, world_size: int, scenarios: Sequence[Scenario], algorithm: str):
    with as_if_on_host(rank % 2):
        return _in_shared_memory(rank, world_size, scenarios, algorithm)


STREAMS, NATIVELY = in_processes(_on_streams), in_processes(_natively)
TRANSPORTS = [
    pytest.param(over_threads, id="threads"),
    pytest.param(in_virtual_time("ideal"), id="simulated"),
    pytest.param(in_virtual_time("gloo"), id="simulated as gloo"),
    pytest.param(in_processes(_on_gloo), id="gloo", marks=pytest.mark.distributed),
    pytest.param(in_processes(_in_shared_memory), id="shm", marks=pytest.mark.distributed),
    pytest.param(STREAMS, id="nccl's, on the CPU", marks=pytest.mark.distributed),
]
NATIVE = pytest.param(NATIVELY, id="native", marks=pytest.mark.distributed)
ALGORITHMS = (
    "naive", "bucket", "bucket:colors=4", "chain", "direct", "direct:segments=3", "double_binary_tree",
    "halving_doubling", "hierarchical:ranks_per_node=2,outer=tree", "one_shot", "ring:channels=3",
    "recursive_doubling", "ring", "swing", "tree",
)  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("over", TRANSPORTS)
def test_a_transport_keeps_the_contract(over, world_size, algorithm, pool):
    try:
        verify(algorithm, world_size)
    except NotSupportedError as refusal:
        pytest.skip(str(refusal))
    results = over(SCENARIOS, world_size, algorithm, pool)

    assert results == over_threads(SCENARIOS, world_size, algorithm)
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("over", [*TRANSPORTS, NATIVE])
def test_a_transport_takes_any_tensors(over, world_size, pool):
    over([*SCENARIOS, *tensor_contract.SCENARIOS], world_size, "ring", pool)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("over", [*TRANSPORTS, NATIVE])
def test_a_transport_brings_messages(over, world_size, pool):
    scenarios = list(message_contract.SCENARIOS)
    if over is not STREAMS:  # on the CPU its streams wait for every operation
        scenarios += message_contract.SCENARIOS_WITHOUT_WAITING
    if over is NATIVELY:  # Gloo does not say whether a message is complete
        scenarios.remove(message_contract.asking_whether_a_message_is_complete_does_not_wait)

    over(scenarios, world_size, "ring", pool)


@pytest.mark.costly
@pytest.mark.distributed
@pytest.mark.parametrize("algorithm", ["direct", "hierarchical:ranks_per_node=2,outer=tree", "ring"])
def test_memory_and_gloo_together_keep_the_contract(algorithm, pool):
    assert pool.run(_on_two_hosts, 4, SCENARIOS, algorithm) == over_threads(SCENARIOS, 4, algorithm)
    if algorithm == "ring":
        pool.run(_on_two_hosts, 4, [*tensor_contract.SCENARIOS, *message_contract.SCENARIOS], algorithm)


@pytest.mark.distributed
@pytest.mark.parametrize("transports", [(None, None), ("shm", "shm"), (None, "shm"), ("shm", None)])
def test_communicators_on_one_group_do_not_mix_and_a_wait_for_one_lets_the_other_go_on(transports, pool):
    assert pool.run(_crosswise, 3, transports) == [(3.0, 6.0)] * 3


def _crosswise(rank: int, world_size: int, transports) -> tuple[float, float]:
    first, second = (connect(algorithm="ring", transport=own, timeout=10) for own in transports)
    a, b = torch.ones(5000), torch.full((5000,), 2.0)
    if rank == 0:
        earlier = first.all_reduce(a, async_op=True)
        second.all_reduce(b)
        earlier.wait()
    else:
        first.all_reduce(a)
        second.all_reduce(b)
    return a[-1].item(), b[-1].item()
