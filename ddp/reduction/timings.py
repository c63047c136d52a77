"""Records of the buckets of a step, from launch to report, in real and simulated runs alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PS_PER_US = 10**6


@dataclass(frozen=True, slots=True)
class BucketRun:
    """One collective of a bucket's journey; times are picoseconds since the step began.

    It is made at the launch; the last three times are known when the bucket has arrived.

    Attributes:
        bucket: its number.
        collective: that carried it.
        nbytes: of the buffer carried, as nccl-tests counts it.
        complete_ps: its last gradient was ready.
        launched_ps: the strategy let it go.
        start_ps: the collectives before it were done, and it began.
        end_ps: the last rank had the result (of a real run: this rank, as far as it noticed).
        exposed_ps: how long computation waited for it.
    """

    bucket: int
    collective: str
    nbytes: int
    complete_ps: int
    launched_ps: int
    start_ps: int = 0
    end_ps: int = 0
    exposed_ps: int = 0


def bucket_rows(runs: Sequence[BucketRun]) -> list[dict[str, Any]]:
    """Return a row for each collective, in the order of launch; times in microseconds."""
    return [
        {
            "bucket": run.bucket,
            "collective": run.collective,
            "size_bytes": run.nbytes,
            "complete_us": run.complete_ps / PS_PER_US,
            "launched_us": run.launched_ps / PS_PER_US,
            "start_us": run.start_ps / PS_PER_US,
            "end_us": run.end_ps / PS_PER_US,
            "exposed_us": run.exposed_ps / PS_PER_US,
        }
        for run in runs
    ]


def overlap_ratio(runs: Sequence[BucketRun]) -> float:
    """Return the part of the communication that no computation waited for: 1 is all hidden."""
    communicated = sum(run.end_ps - run.start_ps for run in runs)
    exposed = sum(run.exposed_ps for run in runs)
    return max(0.0, 1.0 - exposed / communicated) if communicated else 1.0


def bucket_table(runs: Sequence[BucketRun]) -> str:
    """Return the rows as a table of text, with the sums at its end; times in microseconds."""
    head = ["bucket", "collective", "bytes", "complete", "launched", "start", "end", "exposed"]
    lines = [head]
    for row in bucket_rows(runs):
        bucket, collective, nbytes, *times = row.values()
        lines.append([str(bucket), collective, f"{nbytes:,}", *(f"{time:,.1f}" for time in times)])
    exposed_us = sum(run.exposed_ps for run in runs) / PS_PER_US
    nbytes = sum(run.nbytes for run in runs)
    hidden = f"{overlap_ratio(runs):.1%} hidden"
    lines.append(["all", hidden, f"{nbytes:,}", "", "", "", "", f"{exposed_us:,.1f}"])
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if column == 1 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in text)
