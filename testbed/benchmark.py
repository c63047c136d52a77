"""All-reduce timed in one of four ways, and a simulated time beside a measured one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.measure import ITEM_SIZES, Row, Sample, combine, count_wrong, row, sample_all_reduce
from testbed.report.folder import Method
from testbed.report.table import progress

if TYPE_CHECKING:
    import torch

    from collectives.communicator import Communicator
    from collectives.program import Algorithm
    from collectives.transports.threaded import ThreadedTransport
    from sim import Topology


class Transport(StrEnum):
    """What moves the bytes."""

    SIM = "sim"
    THREADS = "threads"
    GLOO = "gloo"
    NCCL = "nccl"


@dataclass(frozen=True)
class Request:
    """What is to be measured."""

    transport: Transport
    num_ranks: int
    algorithm: str
    counts: tuple[int, ...]
    dtype: str
    iterations: int
    warmup: int
    timeout: float


@dataclass(frozen=True)
class Result:
    """Rows, and how they were got.

    Attributes:
        rows: a row per size.
        method: how, in a word for each kind of figure.
        models: what the figures assume, in a sentence each.
        more: further columns, in microseconds or percent: name to a figure per row.
        topologies: what was simulated.
    """

    rows: list[Row]
    method: list[Method]
    models: list[str]
    more: dict[str, list[float]] = field(default_factory=dict)
    topologies: list[Topology] = field(default_factory=list)


def simulate_rows(request: Request, algorithm: Algorithm, topology: Topology, payload: bool) -> Result:
    """Simulate each size on *topology*; ``floor_us`` is what no algorithm can go below.

    With *payload*, rank threads in virtual time carry real tensors too, which are checked.
    """
    from collectives.simulation import resolve_on, simulate

    algorithm = resolve_on(topology, algorithm)
    rows: list[Row] = []
    floors: list[float] = []
    engine = ""
    item = ITEM_SIZES[request.dtype]
    with progress(len(request.counts)) as advance:
        for count in request.counts:
            run = simulate(algorithm, nbytes=count * item, topology=topology, itemsize=item)
            wrong = _wrong_in_virtual_time(request, count, topology) if payload else None
            rows.append(row(count, request.dtype, request.num_ranks, run.seconds, wrong))
            floors.append(run.floor_seconds * 1e6)
            engine = run.engine
            advance(f"{rows[-1].size_bytes} B simulated")
    model = (
        f"Simulated: {algorithm} on {topology.name}, {request.num_ranks} ranks, engine {engine}; latency, "
        "then link bandwidth shared max-min; reduction costs no time; "
        f"{'payload of integers checked on every rank' if payload else 'sizes travel, no payload'}"
    )
    return Result(rows, ["simulated"], [model], {"floor_us": floors}, [topology])


def _wrong_in_virtual_time(request: Request, count: int, topology: Topology) -> int:
    import torch
    import torch.distributed as dist

    from collectives.connection import connect
    from collectives.virtual import run_virtual

    def check(rank: int) -> int:
        dist.init_process_group("testbed")
        tensor = torch.empty(count, dtype=getattr(torch, request.dtype))
        return count_wrong(connect(algorithm=request.algorithm), tensor)

    return sum(run_virtual(check, topology, algorithm=request.algorithm).results)


def measure_threads(request: Request) -> list[Row]:
    """Measure with the ranks as threads of this process."""
    import torch

    from collectives.transports.threaded import run_threads

    torch.set_num_threads(1)
    rows: list[Row] = []
    with progress(len(request.counts)) as advance:
        for count in request.counts:
            one = replace(request, counts=(count,))
            samples = run_threads(partial(_sample_thread, one), request.num_ranks, request.timeout)
            rows += combine(samples, request.dtype)
            advance(f"{rows[-1].size_bytes} B measured")
    return rows


def _sample_thread(request: Request, transport: ThreadedTransport) -> list[Sample]:
    import torch

    from collectives import resolve_algorithm
    from collectives.program_communicator import ProgramCommunicator

    algorithm = _as_measured(resolve_algorithm(request.algorithm), request)
    communicator = ProgramCommunicator(transport, algorithm)
    return list(_samples(communicator, request, torch.device("cpu")))


def measure_processes(request: Request) -> list[Row] | None:
    """Measure as one of several processes; return the rows on rank 0, None elsewhere."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from collectives.connection import connect

    torch.set_num_threads(1)
    device = torch.device("cpu")
    if request.transport is Transport.NCCL:
        device = _own_gpu()
        torch.cuda.set_device(device)
    dist.init_process_group(request.transport.value, timeout=timedelta(seconds=request.timeout))
    try:
        communicator = connect(algorithm=request.algorithm, timeout=request.timeout, device=device)
        samples = []
        with progress(len(request.counts), show=dist.get_rank() == 0) as advance:
            for sample in _samples(communicator, request, device):
                samples.append(sample)
                advance(f"{sample.count * ITEM_SIZES[request.dtype]} B measured")
        gathered: list[Any] = [None] * request.num_ranks
        dist.all_gather_object(gathered, samples)
        return combine(gathered, request.dtype) if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()


def _own_gpu() -> torch.device:
    import torch

    local_rank, num_local = (
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if num_local > available:
        raise UsageError(
            f"nccl needs a GPU of its own for each rank: {num_local} ranks here, {available} GPUs; "
            "try --transport gloo, or fewer --ranks"
        )
    return torch.device("cuda", local_rank)


def _samples(communicator: Communicator, request: Request, device: torch.device) -> Iterator[Sample]:
    return sample_all_reduce(
        communicator,
        request.counts,
        request.dtype,
        iterations=request.iterations,
        warmup=request.warmup,
        device=device,
    )


def _as_measured(algorithm: Algorithm, request: Request) -> Algorithm:
    """Return *algorithm* for the nodes that measured ranks are on; threads are all on one."""
    from collectives.placement import on_nodes

    everywhere = request.num_ranks
    threads = request.transport is Transport.THREADS
    local = everywhere if threads else int(os.environ.get("LOCAL_WORLD_SIZE", everywhere))
    return on_nodes(algorithm, local, range(everywhere))


def measured(request: Request, rows: list[Row]) -> Result:
    """Return measured *rows* as a result."""
    model = (
        f"Measured: {request.algorithm} over {request.transport}, {request.num_ranks} ranks; median of "
        f"{request.iterations} calls of the slowest rank, after {request.warmup}; "
        "payload of integers checked on every rank"
    )
    return Result(rows, ["measured"], [model])


def with_simulation(
    result: Result, request: Request, algorithm: Algorithm | None, topology: Topology | None
) -> Result:
    """Simulate what was measured: on *topology*, or on a switch fitted to the measurement itself.

    The vendor's own all-reduce (*algorithm* is None) has no program; the ring stands for it.
    """
    from collectives import resolve_algorithm
    from collectives.simulation import simulate
    from testbed.fit import fit_switch

    program = _as_measured(algorithm or resolve_algorithm("ring"), request)
    rows, item = result.rows, ITEM_SIZES[request.dtype]
    sizes, times = [row.size_bytes for row in rows], [row.time_us for row in rows]
    if topology is None:
        network = fit_switch(program, request.num_ranks, sizes, [time / 1e6 for time in times])
        origin = _spell_fit(network, len(set(sizes)))
    else:
        network, origin = topology, f"{topology.name}, a prediction that knows nothing of this machine"
    runs = [simulate(program, nbytes=size, topology=network, itemsize=item) for size in sizes]
    simulated = [run.seconds * 1e6 for run in runs]
    errors = [100 * (predicted / time - 1) for predicted, time in zip(simulated, times, strict=True)]
    return replace(
        result,
        method=[*result.method, "simulated"],
        models=[
            *result.models,
            f"Simulated: {'ring, standing for native,' if algorithm is None else program} on {origin}",
            f"Mean absolute error over {len(errors)} sizes: {sum(map(abs, errors)) / len(errors):.1f} %",
        ],
        more={"simulated_us": simulated, "error_percent": errors},
        topologies=[network],
    )


def _spell_fit(network: Topology, num_sizes: int) -> str:
    from sim.units import format_bandwidth, format_time

    bandwidth, latency = int(network.link_bandwidth[0]), int(network.link_latency[0])
    worth = "the error is that of the fit, not of a prediction"
    if num_sizes <= 2:
        worth = f"two constants always fit {num_sizes} size(s): measure more for the error to mean anything"
    per_link = f"{format_bandwidth(bandwidth)}, {format_time(latency)} per link"
    return f"a switch fitted to this very run ({per_link}); {worth}"
