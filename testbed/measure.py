"""What nccl-tests measures: the time of a collective, and whether its payload came out right.

Each rank takes its own times; `combine` turns those of all ranks into one row per size.  The
payload is of small integers, so every order of addition gives the same bits and a wrong element
is one that differs at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from collectives.bandwidth import algbw, busbw
from testbed.errors import UsageError

if TYPE_CHECKING:
    import torch

    from collectives.communicator import Communicator

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

PERIOD = 4
"""The payload of rank r at position i is (i + r) mod 4: sums of up to 85 ranks fit every type."""


@dataclass(frozen=True)
class Row:
    """A line of the result, with the columns of nccl-tests.

    Attributes:
        size_bytes: bytes of the tensor.
        count: its elements.
        type: their type.
        redop: the reduction.
        time_us: of one call, in microseconds.
        algbw_gbs: ``size / time`` in 1e9 bytes/s.
        busbw_gbs: ``algbw * 2(p-1)/p``: what each link carries, whatever the number of ranks.
        wrong: elements that came out wrong, over all ranks; None where no payload travelled.
    """

    size_bytes: int
    count: int
    type: str
    redop: str
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None


@dataclass(frozen=True)
class Sample:
    """What one rank saw of one size: seconds of each call, and wrong elements."""

    count: int
    seconds: tuple[float, ...]
    wrong: int


def count_of(size_bytes: int, dtype: str) -> int:
    """Return how many elements of *dtype* fit into *size_bytes*.

    Raises:
        UsageError: the type is unknown, or not one element fits.
    """
    if dtype not in ITEM_SIZES:
        raise UsageError(f"--dtype {dtype}: expected one of {', '.join(ITEM_SIZES)}")
    count = size_bytes // ITEM_SIZES[dtype]
    if count == 0:
        raise UsageError(f"--sizes: {size_bytes} B holds no element of {dtype}")
    return count


def row(count: int, dtype: str, world_size: int, seconds: float, wrong: int | None) -> Row:
    """Return the row of an all-reduce that took *seconds*."""
    nbytes = count * ITEM_SIZES[dtype]
    algbw_gbs = algbw(nbytes, seconds) / 1e9
    busbw_gbs = busbw("all_reduce", nbytes, seconds, world_size) / 1e9
    return Row(nbytes, count, dtype, "sum", seconds * 1e6, algbw_gbs, busbw_gbs, wrong)


def sample_all_reduce(
    communicator: Communicator,
    counts: Sequence[int],
    dtype: str,
    *,
    iterations: int,
    warmup: int,
    device: torch.device,
) -> Iterator[Sample]:
    """Yield what this rank sees of an all-reduce in place, for each number of elements.

    The calls of one size follow each other without a barrier in between, as in nccl-tests.
    The payload is checked before and after the timed calls, which reduce zeros.
    """
    import torch

    for count in counts:
        tensor = torch.empty(count, dtype=getattr(torch, dtype), device=device)
        wrong = count_wrong(communicator, tensor)
        tensor.zero_()
        for _ in range(warmup):
            communicator.all_reduce(tensor)
        communicator.barrier()
        _synchronize(device)
        times = []
        for _ in range(iterations):
            started = time.perf_counter()
            communicator.all_reduce(tensor)
            _synchronize(device)
            times.append(time.perf_counter() - started)
        yield Sample(count, tuple(times), wrong + count_wrong(communicator, tensor))


def combine(samples: Sequence[Sequence[Sample]], dtype: str) -> list[Row]:
    """Return the rows of a run from the samples of each rank.

    A call takes as long as its slowest rank; the row's time is the median over the calls.
    """
    rows = []
    for of_ranks in zip(*samples, strict=True):
        calls = zip(*(sample.seconds for sample in of_ranks), strict=True)
        wrong = sum(sample.wrong for sample in of_ranks)
        rows.append(row(of_ranks[0].count, dtype, len(of_ranks), median(map(max, calls)), wrong))
    return rows


def count_wrong(communicator: Communicator, tensor: torch.Tensor) -> int:
    """Reduce the payload in *tensor*; return how many of its elements are wrong on this rank."""
    import torch

    position = torch.arange(len(tensor), device=tensor.device) % PERIOD
    tensor.copy_((position + communicator.rank) % PERIOD)
    communicator.all_reduce(tensor)
    sums = [
        sum((start + rank) % PERIOD for rank in range(communicator.world_size)) for start in range(PERIOD)
    ]
    expected = torch.tensor(sums, device=tensor.device).to(tensor.dtype)[position]
    return int((tensor != expected).sum())


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
