"""Result of timings of a collective: in the columns of nccl-tests, or algorithms side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from testbed.benchmarking.benchmark import BenchRequest, Timings, TransportName, spell
from testbed.benchmarking.measure import Row
from testbed.options import evidence
from testbed.output.table import counted, seconds, spell_size
from testbed.report.over_sizes import over_sizes
from testbed.report.times import LEGEND, fastest_table, nccl_table, time_tables
from testbed.result import Fitted, Part, Plot, Result, Rows, Text, asked, found, found_by, quiet

if TYPE_CHECKING:
    from rich.console import Console

    from collectives.catalogue.admission import Evidence
    from testbed.plots.figure import Lines

PAGE_WIDTH = 130
"""Columns that a page has room for, by which tables are divided."""
COLUMNS = (
    *asked("collective", "algorithm", "size_bytes", "count", "type", "redop", "root"),
    *found("time_us", "algbw_gbs", "busbw_gbs", "wrong", "seconds", "chosen", "floor_us"),
    *found("simulated_us", "error_percent"),
    *found_by("engine"),
)
REFUSED = (*asked("algorithm"), *found("reason"))


def bench_result(request: BenchRequest, timings: Timings, *, interrupted: bool = False) -> Result:
    """Return *timings* of *request*; it fails where an element came out wrong."""
    refused = [{"algorithm": own.algorithm, "reason": own.reason} for own in timings.refusals]
    proved = _proved(request)
    return Result(
        question=title(request, timings),
        answer=answer(timings.rows),
        method=timings.method,
        model="; ".join(timings.models),
        topologies={topology.name: topology.digest() for topology in timings.topologies},
        assumptions=request.assumptions or {},
        rows=Rows(COLUMNS, [row.as_json() for row in timings.rows]),
        tables={"refused": Rows(REFUSED, refused)},
        asked=("transport", "transport_model", "ranks", "collective"),
        body={
            "transport": request.transport.value,
            "transport_model": None if request.assumed is None else request.assumed.software.transport.name,
            "ranks": request.num_ranks,
            "collective": request.collective,
            "interrupted": interrupted,
            **evidence.as_json(proved),
        },
        parts=list(_parts(request, timings, proved)),
        failure=_what_is_wrong(request, timings.rows),
    )


def _parts(request: BenchRequest, timings: Timings, proved: Sequence[Evidence]) -> Iterator[Part]:
    yield Plot(
        partial(_over_sizes, timings.rows),
        "Time of a call",
        alone=title(request, timings),
        assumed=f"{'; '.join(timings.models)}.",
    )
    if len({row.algorithm for row in timings.rows}) == 1:
        yield nccl_table(timings.rows)
    else:

        def side_by_side(console: Console | None) -> Sequence[Part]:
            return list(time_tables(timings.rows, PAGE_WIDTH if console is None else console.width))

        yield Text(title=title(request, timings))
        yield Fitted(side_by_side)
        yield fastest_table(timings.rows)
        yield quiet(LEGEND)
    yield Text([f"Left out: {refusal}." for refusal in timings.refusals], wrap=True)
    yield quiet(
        *(f"{model}." for model in timings.models),
        *(f"{one}." for one in proved),
        gap=not timings.refusals,
    )


def _proved(request: BenchRequest) -> list[Evidence]:
    """Return what was proved of the candidates, which know their nodes already."""
    programs = [own.algorithm for own in request.candidates if own.algorithm is not None]
    return evidence.evidence_for(programs, [(request.num_ranks, request.num_ranks)], request.collective)


def title(request: BenchRequest, timings: Timings) -> str:
    """Return what was timed, where, and how, in a line."""
    where = timings.topologies[0].name if request.transport is TransportName.SIM else request.transport.value
    what = spell(request.collective).capitalize()
    ranks = counted(request.num_ranks, "rank")
    return f"{what} on {where}, {ranks}, {timings.method[0]}"


def answer(rows: Sequence[Row]) -> str:
    """Return in a sentence what *rows* come to."""
    largest = max(row.size_bytes for row in rows)
    timed = [row for row in rows if row.size_bytes == largest]
    best = min(timed, key=lambda row: row.time_us)
    others = f", the fastest of {len(timed)}" if len(timed) > 1 else ""
    return f"{spell_size(largest)} take {seconds(best.time_us / 1e6)} by {best.algorithm}{others}."


def _what_is_wrong(request: BenchRequest, rows: Sequence[Row]) -> str | None:
    """Return which algorithms came out wrong, and in how many elements; None: all are right."""
    wrong: dict[str, int] = {}
    for row in rows:
        if row.wrong:
            wrong[row.algorithm] = wrong.get(row.algorithm, 0) + row.wrong
    if not wrong:
        return None
    elements = ", ".join(f"{name}: {count} elements" for name, count in wrong.items())
    return f"{spell(request.collective)} over {request.transport} came out wrong; {elements}"


def _over_sizes(rows: Sequence[Row]) -> Lines:
    times: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        times.setdefault(row.algorithm, []).append((row.size_bytes, row.time_us / 1e6))
    floor = [(row.size_bytes, row.floor_us / 1e6) for row in rows if row.floor_us]
    return over_sizes(dict(sorted(times.items())), floor, quantity="time of a call")
