"""Measurement as nccl-tests does it: the time of a collective, and a check of its payload.

Each rank takes its own times; `combine` turns those of all ranks into rows.  Where several
algorithms are measured, they take turns at each size, so that all see the same weather.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from collectives.timing.formulas.bandwidth import algbw, busbw
from testbed.benchmarking.candidates import Refusal
from testbed.benchmarking.payload import REDUCING, ROOT, ROOTED, Payload, num_parts
from testbed.errors import UsageError

if TYPE_CHECKING:
    import torch

    from collectives.communicators.communicator import Communicator

ITEM_SIZES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
}
"""The types that can be measured, and their bytes."""

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
        chosen: what ``auto`` has chosen.
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

    Of ``auto`` it also says what was chosen.
    """

    algorithm: str
    count: int
    seconds: tuple[float, ...]
    wrong: int
    chosen: str | None = None


def count_of(size_bytes: int, dtype: str, collective: str = "all_reduce", world_size: int = 1) -> int:
    """Return how many elements of *dtype* the tensor of a buffer of *size_bytes* holds, or each part.

    Raises:
        UsageError: the type is unknown, or not one element fits.
    """
    if dtype not in ITEM_SIZES:
        raise UsageError(f"--dtype {dtype}: expected one of {', '.join(ITEM_SIZES)}")
    parts = num_parts(collective, world_size)
    count = size_bytes // (ITEM_SIZES[dtype] * parts)
    if count == 0:
        each = f" for each of {parts} ranks; begin at {ITEM_SIZES[dtype] * parts} B" if parts > 1 else ""
        raise UsageError(f"--nbytes: {size_bytes} B holds no element of {dtype}{each}")
    return count


def size_of(count: int, dtype: str, collective: str, world_size: int) -> int:
    """Return the bytes of the whole buffer, as nccl-tests counts them."""
    return count * ITEM_SIZES[dtype] * num_parts(collective, world_size)


def row(
    collective: str,
    algorithm: str,
    count: int,
    dtype: str,
    world_size: int,
    seconds: float,
    wrong: int | None,
) -> Row:
    """Return the row of a call that took *seconds*."""
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
    )


def sample(
    communicators: Mapping[str, Communicator],
    collective: str,
    counts: Sequence[int],
    dtype: str,
    *,
    iterations: int,
    warmup: int,
    device: torch.device,
    registered: bool = False,
    visiting: Callable[[str, int], None] = lambda algorithm, count: None,
) -> Iterator[Sample | Refusal]:
    """Yield what this rank sees of each algorithm at each size, size by size.

    The calls of a turn follow each other without a barrier in between and count on average, as in
    nccl-tests: a median over single calls would hide how often an algorithm is slow.  The
    payload is checked before and after the timed calls, which move zeros.  One of several
    algorithms that refuses what it is to carry out is measured no further.

    Args:
        communicators: by the name of the algorithm that they run.
        collective: that is measured.
        counts: elements of the tensor, or of a rank's part of it.
        dtype: one of `ITEM_SIZES`.
        iterations: timed calls of each algorithm and size.
        warmup: calls before the first turn; one before each further.
        device: where the tensors live.
        registered: whether they are of the communicator's own memory, where it has any.
        visiting: is told the algorithm and the count before each turn.
    """
    import torch

    from collectives import NotSupportedError

    left = dict(communicators)
    for count in counts:
        payloads = _payloads(left, collective, count, getattr(torch, dtype), device, registered)
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
        num_turns = turns_of(iterations)
        for turn in range(num_turns):
            calls = iterations * (turn + 1) // num_turns - iterations * turn // num_turns
            names = list(left)
            first = turn % max(len(names), 1)
            for name in names[first:] + names[:first]:
                visiting(name, count)
                warm = warmup if turn == 0 else min(warmup, 1)
                seconds[name].append(_time(left[name], payloads[name], calls, warm, device))
        for name, communicator in left.items():
            again = payloads[name].count_wrong(communicator)
            nbytes = size_of(count, dtype, collective, communicator.world_size)
            chosen = _chosen(communicator, collective, nbytes)
            yield Sample(name, count, tuple(seconds[name]), wrong[name] + again, chosen)


def _chosen(communicator: Communicator, collective: str, nbytes: int) -> str | None:
    """Return what ``auto`` chooses at that size; None of any other algorithm."""
    from collectives.communicators.auto import AutoLauncher

    if not isinstance(communicator.launcher, AutoLauncher):
        return None
    return str(communicator.launcher.selector.select(collective, nbytes) or "native")


def _payloads(
    communicators: Mapping[str, Communicator],
    collective: str,
    count: int,
    dtype: torch.dtype,
    device: torch.device,
    registered: bool,
) -> dict[str, Payload]:
    """Return the payload of each algorithm: one for all, unless each has memory of its own."""
    some = next(iter(communicators.values()))
    make = partial(
        Payload, collective, count, dtype, rank=some.rank, world_size=some.world_size, device=device
    )
    if registered:
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
    samples: Sequence[Sequence[Sample | Refusal]], collective: str, dtype: str
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
        timed = row(collective, first.algorithm, first.count, dtype, len(of_ranks), taken, wrong)
        rows.append(replace(timed, chosen=alike[0].chosen))
    return rows, refusals
