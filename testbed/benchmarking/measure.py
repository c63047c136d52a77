"""Measurement as nccl-tests does it: the time of a collective, and a check of its payload.

Each rank takes its own times; `combine` turns those of all ranks into rows.  Where several
algorithms are measured, they take turns at each size, so that all see the same weather.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from collectives import NotSupportedError
from collectives.timing.formulas.bandwidth import algbw, busbw
from testbed.benchmarking.candidates import BenchRequest, Refusal
from testbed.benchmarking.payload import REDUCING, ROOT, ROOTED, Payload, size_of

if TYPE_CHECKING:
    import torch

    from collectives.communicators.communicator import Communicator

MAX_TURNS = 5
"""In how many turns each algorithm makes its calls of a size."""


@dataclass(frozen=True)
class Row:
    """A line of the result, with the columns of nccl-tests.

    Attributes:
        collective: what was carried out.
        algorithm: how, as the user wrote it.
        size_bytes: bytes of the whole buffer: of all parts, where it consists of one for each rank.
        count: elements of the tensor, or of such a part.
        type: their type.
        redop: the reduction, ``none`` where nothing is reduced.
        root: the rank that is special, None where none is.
        time_us: of one call, in microseconds.
        algbw_gbs: ``size / time`` in 1e9 bytes/s.
        busbw_gbs: what each link carries, whatever the number of ranks (see
        `collectives.timing.formulas.bandwidth`). wrong: elements that came out wrong, over all ranks; None
        where no payload travelled. seconds: of one call, as other commands call it.
        engine: that simulated the time; None where it was measured.
        chosen: what ``auto`` or ``connect`` has chosen.
        floor_us: below which no algorithm can be, where the time was simulated.
        simulated_us: the simulated time beside a measured one.
        error_percent: by which that is too long.
    """

    collective: str
    algorithm: str
    size_bytes: int
    count: int
    type: str
    redop: str
    root: int | None
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None
    seconds: float
    engine: str | None = None
    chosen: str | None = None
    floor_us: float | None = None
    simulated_us: float | None = None
    error_percent: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON types, without the last columns where they say nothing."""
        optional = ("engine", "chosen", "floor_us", "simulated_us", "error_percent")
        return {
            name: value for name, value in asdict(self).items() if name not in optional or value is not None
        }


@dataclass(frozen=True)
class Sample:
    """What one rank saw of one algorithm at one size: mean seconds of a call in each turn, wrong elements.

    Of one that chooses by size it also says what was chosen.
    """

    algorithm: str
    count: int
    seconds: tuple[float, ...]
    wrong: int
    chosen: str | None = None


def row(
    request: BenchRequest, algorithm: str, count: int, seconds: float, wrong: int | None, **more: Any
) -> Row:
    """Return the row of a call of *algorithm* that took *seconds*; *more*: further columns."""
    collective, dtype, world_size = request.collective, request.dtype, request.num_ranks
    nbytes = size_of(count, dtype, collective, world_size)
    return Row(
        collective=collective,
        algorithm=algorithm,
        size_bytes=nbytes,
        count=count,
        type=dtype,
        redop="sum" if collective in REDUCING else "none",
        root=ROOT if collective in ROOTED else None,
        time_us=seconds * 1e6,
        algbw_gbs=algbw(nbytes, seconds) / 1e9,
        busbw_gbs=busbw(collective, nbytes, seconds, world_size) / 1e9,
        wrong=wrong,
        seconds=seconds,
        **more,
    )


def sample(
    communicators: Mapping[str, Communicator],
    request: BenchRequest,
    device: torch.device,
    visiting: Callable[[str, int], None] = lambda algorithm, count: None,
) -> Iterator[Sample | Refusal]:
    """Yield what this rank sees of each algorithm at each size, size by size.

    The calls of a turn follow each other without a barrier in between and count on average, as in
    nccl-tests: a median over single calls would hide how often an algorithm is slow.  The
    payload is checked before and after the timed calls, which move zeros; before the first turn calls warm
    up as the request says, before each further one does.  One of several algorithms that refuses what it is
    to carry out is measured no further.

    Args:
        communicators: by the name of the algorithm that they run.
        request: what is measured.
        device: where the tensors live.
        visiting: is told the algorithm and the count before each turn.
    """
    choosing = {own.name for own in request.candidates if own.chooses}
    left = dict(communicators)
    for count, nbytes in zip(request.counts, request.sizes, strict=True):
        payloads = _payloads(left, request, count, device)
        wrong: dict[str, int] = {}
        for name, communicator in list(left.items()):
            visiting(name, count)
            try:
                wrong[name] = payloads[name].count_wrong(communicator)
            except NotSupportedError as error:
                if len(communicators) == 1:
                    raise
                del left[name]
                yield Refusal(name, str(error))
        for payload in payloads.values():
            payload.clear()
        seconds: dict[str, list[float]] = {name: [] for name in left}
        num_turns = turns_of(request.iterations)
        for turn in range(num_turns):
            calls = request.iterations * (turn + 1) // num_turns - request.iterations * turn // num_turns
            names = list(left)
            first = turn % max(len(names), 1)
            for name in names[first:] + names[:first]:
                visiting(name, count)
                warm = request.warmup if turn == 0 else min(request.warmup, 1)
                seconds[name].append(_time(left[name], payloads[name], calls, warm, device))
        for name, communicator in left.items():
            again = payloads[name].count_wrong(communicator)
            chosen = _chosen(communicator, request.collective, nbytes) if name in choosing else None
            yield Sample(name, count, tuple(seconds[name]), wrong[name] + again, chosen)


def _chosen(communicator: Communicator, collective: str, nbytes: int) -> str:
    """Return what *communicator* chooses at that size."""
    from collectives.communicators.auto import AutoLauncher
    from collectives.communicators.programs import ProgramLauncher

    assert isinstance(communicator.launcher, AutoLauncher | ProgramLauncher)
    return str(communicator.launcher.selector.select(collective, nbytes) or "native")


def _payloads(
    communicators: Mapping[str, Communicator], request: BenchRequest, count: int, device: torch.device
) -> dict[str, Payload]:
    """Return the payload of each algorithm: one for all, unless each has memory of its own."""
    import torch

    some = next(iter(communicators.values()))
    place: Any = {"rank": some.rank, "world_size": some.world_size, "device": device}
    make = partial(Payload, request.collective, count, getattr(torch, request.dtype), **place)
    if request.registered:
        return {name: make(zeros=own.zeros) for name, own in communicators.items()}
    return dict.fromkeys(communicators, make())


def turns_of(iterations: int) -> int:
    """Return in how many turns an algorithm makes its timed calls of a size."""
    return min(MAX_TURNS, iterations)


def _time(
    communicator: Communicator, payload: Payload, calls: int, warmup: int, device: torch.device
) -> float:
    """Return the mean seconds of a call; the calls follow each other."""
    for _ in range(warmup):
        payload.call(communicator)
    communicator.barrier()
    _synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        payload.call(communicator)
    _synchronize(device)
    return (time.perf_counter() - started) / calls


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def combine(
    samples: Sequence[Sequence[Sample | Refusal]], request: BenchRequest
) -> tuple[list[Row], list[Refusal]]:
    """Return the rows of a run, and what was refused, from what each rank saw.

    A turn takes as long as its slowest rank; the row's time is the median over the turns.
    """
    rows, refusals = [], []
    for of_ranks in zip(*samples, strict=True):
        first = of_ranks[0]
        if isinstance(first, Refusal):
            refusals.append(first)
            continue
        alike = [own for own in of_ranks if isinstance(own, Sample)]
        turns = zip(*(own.seconds for own in alike), strict=True)
        wrong = sum(own.wrong for own in alike)
        taken = median(map(max, turns))
        rows.append(row(request, first.algorithm, first.count, taken, wrong, chosen=alike[0].chosen))
    return rows, refusals
