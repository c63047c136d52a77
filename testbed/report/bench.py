"""Result of timings of a collective: in the columns of nccl-tests, or algorithms side by side.

Side by side sizes are columns, so that names of algorithms have room; where not all sizes fit the terminal,
the table goes on below.  A column has one unit, chosen for its fastest time, so that figures below each other
can be compared by their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import Console

from collectives.catalogue.admission import Evidence
from testbed.benchmarking.benchmark import Timings, spell
from testbed.benchmarking.candidates import BenchRequest, TransportName
from testbed.benchmarking.measure import Row
from testbed.options import evidence
from testbed.output.table import counted, seconds, spell_size
from testbed.plots.figure import curves, over_sizes
from testbed.result import Fitted, Grid, Part, Plot, Result, Rows, Text, asked, found, found_by, quiet

PAGE_WIDTH = 130
"""Columns that a page has room for, by which tables are divided."""
COLUMNS = (
    *asked("collective", "algorithm"),
    *asked("size_bytes", head="size\n(B)"),
    *asked("count", head="count\n(elements)"),
    *asked("type", head="type\n"),
    *asked("redop", head="redop\n"),
    *asked("root", head="root\n"),
    *found("time_us", head="time\n(us)", spell="{:.2f}".format),
    *found("algbw_gbs", head="algbw\n(GB/s)", spell="{:.3f}".format),
    *found("busbw_gbs", head="busbw\n(GB/s)", spell="{:.3f}".format),
    *found("wrong", head="#wrong\n", none="N/A"),
    *found("seconds"),
    *found("chosen", head="chosen\n"),
    *found("floor_us", head="floor\n(us)", spell="{:.2f}".format),
    *found("simulated_us", head="simulated\n(us)", spell="{:.2f}".format),
    *found("error_percent", head="error\n(%)", spell="{:+.1f}".format),
    *found_by("engine"),
)
REFUSED = (*asked("algorithm"), *found("reason"))
FASTEST = "*"
LEGEND = f"{FASTEST}: the fastest at this size; sizes are to three digits."

_UNITS = ((1e6, "s"), (1e3, "ms"), (0.0, "µs"))
_GAP = 2


def bench_result(request: BenchRequest, timings: Timings) -> Result:
    """Return *timings* of *request*; it fails where an element came out wrong."""
    programs = [own.algorithm for own in request.candidates if own.algorithm is not None]
    proved = evidence.evidence_for(programs, [(request.num_ranks, request.num_ranks)], request.collective)
    rows = Rows(COLUMNS, [row.as_json() for row in timings.rows])
    return Result(
        question=title(request, timings),
        answer=answer(timings.rows),
        method=timings.method,
        model="; ".join(timings.models),
        topologies={topology.name: topology.digest() for topology in timings.topologies},
        assumptions=request.assumptions or {},
        rows=rows,
        tables={"refused": Rows.of(REFUSED, timings.refusals)},
        asked=("transport", "transport_model", "ranks", "collective"),
        body={
            "transport": request.transport.value,
            "transport_model": None if request.assumed is None else request.assumed.software.transport.name,
            "ranks": request.num_ranks,
            "collective": request.collective,
            **evidence.as_json(proved),
        },
        parts=list(_parts(request, timings, rows, proved)),
        failure=_what_is_wrong(request, timings.rows),
    )


def _parts(request: BenchRequest, timings: Timings, rows: Rows, proved: Sequence[Evidence]) -> Iterator[Part]:
    yield Plot(
        partial(
            over_sizes,
            curves(sorted((row.algorithm, row.size_bytes, row.time_us / 1e6) for row in timings.rows)),
            [(row.size_bytes, (row.floor_us or 0.0) / 1e6) for row in timings.rows],
            quantity="time of a call",
        ),
        "Time of a call",
        alone=title(request, timings),
        assumed=f"{'; '.join(timings.models)}.",
    )
    if len({row.algorithm for row in timings.rows}) == 1:
        yield rows.grid(text_columns=0)
    else:

        def side_by_side(console: Console | None) -> Sequence[Part]:
            return list(time_tables(timings.rows, PAGE_WIDTH if console is None else console.width))

        yield Text(title=title(request, timings))
        yield Fitted(side_by_side)
        yield fastest_table(timings.rows)
        yield quiet(LEGEND)
    yield Text([f"Left out: {refusal}." for refusal in timings.refusals], wrap=True)
    yield quiet(
        *(f"{model}." for model in timings.models), *(f"{one}." for one in proved), gap=not timings.refusals
    )


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


def time_tables(rows: Sequence[Row], width: int) -> Iterator[Grid]:
    """Yield the times of algorithms by size, with the floor, in tables of at most *width* columns."""
    names = sorted({row.algorithm for row in rows})
    best = winners(rows)
    columns: list[list[str]] = []

    for size in sorted({row.size_bytes for row in rows}):
        here = {row.algorithm: row for row in rows if row.size_bytes == size}
        floor = max((row.floor_us for row in here.values() if row.floor_us is not None), default=None)
        quickest = min(row.time_us for row in here.values())
        scale, unit = next((scale or 1.0, unit) for scale, unit in _UNITS if quickest >= scale)
        digits = 2 if quickest / scale < 9.995 else 1 if quickest / scale < 99.95 else 0
        cells = [f"{spell_size(size)}\n({unit})"]
        for name in names:
            figure = f"{here[name].time_us / scale:.{digits}f}" if name in here else "–"
            cells.append(FASTEST + figure if name in best.get(size, ()) else figure)
        if floor is not None:
            cells.append(f"{floor / scale:.{digits}f}")
        columns.append(cells)

    lead = ["algorithm\n", *names, *(["floor"] if len(columns[0]) > len(names) + 1 else [])]
    widest = max(len(part) for cells in columns for cell in cells for part in cell.split("\n"))
    fitting = max(1, (width - max(map(len, lead))) // (widest + _GAP))
    num_tables = -(-len(columns) // fitting)
    abreast = -(-len(columns) // num_tables)

    for first in range(0, len(columns), abreast):
        shown = [lead, *columns[first : first + abreast]]
        heads, *lines = zip(*shown, strict=True)
        fastest = {
            (number, place)
            for number, line in enumerate(lines)
            for place, cell in enumerate(line)
            if cell.startswith(FASTEST)
        }
        yield Grid(heads, lines, bold=frozenset(fastest))


def winners(rows: Sequence[Row]) -> dict[int, tuple[str, ...]]:
    """Return which algorithms are fastest at each size, in the order of sizes; a wrong one never is."""
    found: dict[int, tuple[str, ...]] = {}
    for size in sorted({row.size_bytes for row in rows}):
        right = [row for row in rows if row.size_bytes == size and not row.wrong]
        least = min((row.time_us for row in right), default=0.0)
        if right:
            found[size] = tuple(sorted({row.algorithm for row in right if row.time_us == least}))
    return found


def fastest_ranges(rows: Sequence[Row]) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return as few ranges of sizes as possible, with those who are fastest from the first to the last."""
    ranges: list[tuple[int, int, tuple[str, ...]]] = []
    for size, names in winners(rows).items():
        if ranges:
            first, _, before = ranges[-1]
            still = tuple(name for name in before if name in names)
            if still:
                ranges[-1] = first, size, still
                continue
        ranges.append((size, size, names))
    return ranges


def fastest_table(rows: Sequence[Row]) -> Grid:
    """Return who is fastest, in a line per range of sizes."""
    lines = [
        (
            spell_size(first) if first == last else f"{spell_size(first)} – {spell_size(last)}",
            ", ".join(names),
        )
        for first, last, names in fastest_ranges(rows)
    ]
    return Grid(("sizes", "fastest"), lines, text_columns=2)
