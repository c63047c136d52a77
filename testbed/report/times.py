"""Times of a collective as tables: nccl-tests' columns, or algorithms side by side, and who wins.

Sizes are columns, so that names of algorithms have room; where not all sizes fit the terminal,
the table goes on below.  A column has one unit, chosen for its fastest time, so that
figures below each other can be compared by their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.benchmarking.measure import Row
from testbed.output.table import spell_size
from testbed.result import Grid

FASTEST = "*"
LEGEND = f"{FASTEST}: the fastest at this size; sizes are to three digits."

_MORE = {
    "chosen": "chosen\n",
    "floor_us": "floor\n(us)",
    "simulated_us": "simulated\n(us)",
    "error_percent": "error\n(%)",
}
_UNITS = ((1e6, "s"), (1e3, "ms"), (0.0, "µs"))
_GAP = 2


def nccl_table(rows: Sequence[Row]) -> Grid:
    """Return the columns of nccl-tests, and those of ours that these rows have."""
    rooted = any(row.root is not None for row in rows)
    more = [name for name in _MORE if any(getattr(row, name) is not None for row in rows)]
    columns = ["size\n(B)", "count\n(elements)", "type\n", "redop\n"]
    if rooted:
        columns.append("root\n")
    columns.append("time\n(us)")
    columns += ["algbw\n(GB/s)", "busbw\n(GB/s)", "#wrong\n", *[_MORE[name] for name in more]]
    lines = []
    for row in rows:
        line = [str(row.size_bytes), str(row.count), row.type, row.redop]
        if rooted:
            line.append(str(row.root))
        line += [f"{row.time_us:.2f}", f"{row.algbw_gbs:.3f}", f"{row.busbw_gbs:.3f}"]
        line.append("N/A" if row.wrong is None else str(row.wrong))
        line += [_spell(name, getattr(row, name)) for name in more]
        lines.append(line)
    return Grid(columns, lines, text_columns=0)


def _spell(name: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:+.1f}" if name == "error_percent" else f"{value:.2f}"


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
