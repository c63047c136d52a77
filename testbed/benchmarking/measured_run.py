"""Measured runs, whose ranks are threads of this process or processes of a process group.

The processes are those of torchrun, or are started here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.benchmarking.candidates import NATIVE, BenchRequest, Refusal, TransportName, choose_candidates
from testbed.benchmarking.measure import Row, Sample, combine, sample, turns_of
from testbed.benchmarking.payload import size_of
from testbed.errors import UsageError
from testbed.output.table import Advance, progress, spell_size
from testbed.scripts.launch import ask_ranks

if TYPE_CHECKING:
    import torch

    from collectives.transports.threaded import ThreadedTransport

Visit = Callable[[str, int], None]


def measure_threads(request: BenchRequest) -> tuple[list[Row], list[Refusal]]:
    """Measure with the ranks as threads of this process."""
    import torch

    from collectives.transports.threaded import run_threads

    torch.set_num_threads(1)
    with progress(_num_visits(request)) as advance:
        function = partial(_sample_thread, request, _visiting(request, advance))
        samples = run_threads(function, request.num_ranks, request.timeout)
    return combine(samples, request)


def _sample_thread(
    request: BenchRequest, visiting: Visit, transport: ThreadedTransport
) -> list[Sample | Refusal]:
    import torch

    from collectives.communicators.communicator import Communicator
    from collectives.communicators.programs import ProgramLauncher

    communicators = {
        candidate.name: Communicator(ProgramLauncher(transport, {request.collective: candidate.algorithm}))
        for candidate in request.candidates
        if candidate.algorithm is not None
    }
    told = {"visiting": visiting} if transport.rank == 0 else {}
    return list(sample(communicators, request, torch.device("cpu"), **told))


def measure_on_ranks(
    request: BenchRequest, algorithm: str | None, port: int | None
) -> tuple[list[Row], list[Refusal]]:
    """Measure by a process for each rank, which are started and end here.

    Args:
        request: what is to be timed.
        algorithm: names of its candidates, as they were written.
        port: where the ranks meet; by default one that is free.

    Raises:
        RankExitError: a rank failed and has not said why.
        SystemExit: it has said so itself.
    """
    order = replace(request, candidates=()), algorithm  # which each rank finds by their names
    return ask_ranks(_measure_as_ordered, order, request.num_ranks, port=port)


def _measure_as_ordered(order: tuple[BenchRequest, str | None]) -> tuple[list[Row], list[Refusal]] | None:
    """Measure as one of the processes of `measure_on_ranks`."""
    request, algorithm = order
    candidates, _ = choose_candidates(
        algorithm,
        request.collective,
        request.num_ranks,
        ranks_per_node=request.num_ranks,
        native=True,
        transport=request.transport.value,
    )
    return measure_processes(replace(request, candidates=tuple(candidates)))


def measure_processes(request: BenchRequest) -> tuple[list[Row], list[Refusal]] | None:
    """Measure as one of several processes; return the rows on rank 0, None elsewhere.

    They meet on the loopback if that is where they were sent.
    """
    import torch
    import torch.distributed as dist

    from collectives.communicators.connection import connect
    from testbed.scripts.loopback import listen_on_loopback

    listen_on_loopback()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    on_shm = request.transport is TransportName.SHM
    if request.transport is TransportName.NCCL:
        device = _own_gpu()
        torch.cuda.set_device(device)
    dist.init_process_group(request.transport.backend, timeout=timedelta(seconds=request.timeout))
    try:
        communicators = {
            candidate.name: connect(
                algorithm=candidate.choice(request.collective),
                transport="shm" if on_shm and candidate.name != NATIVE else None,
                timeout=request.timeout,
                device=device,
            )
            for candidate in request.candidates
        }
        with progress(_num_visits(request), show=dist.get_rank() == 0) as advance:
            samples = list(sample(communicators, request, device, _visiting(request, advance)))
        gathered: list[Any] = [None] * request.num_ranks
        dist.all_gather_object(gathered, samples)
        return combine(gathered, request) if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()


def _own_gpu() -> torch.device:
    import torch

    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if num_local > available:
        raise UsageError(
            f"nccl needs a GPU of its own for each rank: {num_local} ranks here, {available} GPUs; "
            "try --transport gloo, or fewer --ranks"
        )
    return torch.device("cuda", local_rank)


def _num_visits(request: BenchRequest) -> int:
    """Return how often an algorithm has its turn: to be checked, and to be timed."""
    num_algorithms = len(request.candidates)
    return len(request.counts) * num_algorithms * (1 + turns_of(request.iterations))


def _visiting(request: BenchRequest, advance: Advance) -> Visit:
    def visiting(algorithm: str, count: int) -> None:
        nbytes = size_of(count, request.dtype, request.collective, request.num_ranks)
        advance(f"{spell_size(nbytes)}, {algorithm}")

    return visiting
