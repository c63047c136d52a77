"""Page of measured or simulated calls."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.benchmarking.measure import Row
from testbed.output.table import seconds, spell_size
from testbed.pages.page import Plot
from testbed.pages.plots.lines import FLOOR, lines


def bench_answer(rows: Sequence[Row]) -> str:
    """Return in a sentence what *rows* come to."""
    largest = max(row.size_bytes for row in rows)
    timed = [row for row in rows if row.size_bytes == largest and row.time_us is not None]
    if not timed:
        return "Nothing was timed at the largest size."
    best = min(timed, key=lambda row: row.time_us or 0.0)
    others = f", the fastest of {len(timed)}" if len(timed) > 1 else ""
    return f"{spell_size(largest)} take {seconds((best.time_us or 0.0) / 1e6)} by {best.algorithm}{others}."


def bench_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return the time over sizes, if there are several."""
    if len({row.size_bytes for row in rows}) < 2:
        return []
    named: dict[str, list[tuple[float, float]]] = {}
    floor = sorted({(row.size_bytes, row.floor_us / 1e6) for row in rows if row.floor_us})
    if floor:
        named[FLOOR] = list(floor)
    for row in rows:
        if row.time_us:
            named.setdefault(row.algorithm, []).append((row.size_bytes, row.time_us / 1e6))
    drawn = lines(
        {name: sorted(points) for name, points in named.items()},
        x="size of the buffer",
        y="time of a call",
        log_y=True,
        spell_x=lambda size: spell_size(int(size)),
        spell_y=seconds,
    )
    return [Plot(drawn, "Time of a call")]
