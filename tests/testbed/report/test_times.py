"""Tables and plots of times: who wins, at which sizes, and that all of it can be read."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from testbed.benchmarking.candidates import BenchRequest, TransportName
from testbed.benchmarking.measure import Row, row
from testbed.plots.figure import over_sizes
from testbed.report.bench import fastest_ranges, fastest_table, time_tables, winners
from testbed.result.parts import show_parts


def rendered(*parts, width=100):
    stream = io.StringIO()
    show_parts(Console(file=stream, width=width), parts)
    return stream.getvalue()


def rows_of(times, wrong=0):
    """Return rows of 4 KiB, 8 KiB and so on, with these microseconds."""
    request = BenchRequest(TransportName.SIM, 4, "all_reduce", (), (), "float32", 1, 0, 1.0)
    return [
        row(request, name, 1024 << number, microseconds / 1e6, wrong)
        for name, line in times.items()
        for number, microseconds in enumerate(line)
    ]


@pytest.mark.parametrize(
    ("times", "ranges"),
    [
        ({"ring": [9, 8, 3, 2], "tree": [1, 2, 4, 8]}, [(4096, 8192, "tree"), (16384, 32768, "ring")]),
        ({"a": [1, 1, 1], "b": [1, 1, 2], "c": [2, 2, 1]}, [(4096, 16384, "a")]),
    ],
)
def test_ranges_of_sizes_are_merged_where_a_winner_stays_be_it_one_of_several(times, ranges):
    rows = rows_of(times)

    assert fastest_ranges(rows) == [(first, last, (name,)) for first, last, name in ranges]
    assert ranges[0][2] in rendered(fastest_table(rows)).split("\n")[2].split()


times = st.lists(st.integers(1, 4).map(float), min_size=5, max_size=5)


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1))
def test_whoever_stands_for_a_range_is_fastest_at_each_of_its_sizes(measured):
    rows = rows_of(measured)
    best = winners(rows)

    covered = []
    for first, last, names in fastest_ranges(rows):
        inside = [size for size in best if first <= size <= last]
        assert all(set(names) <= set(best[size]) for size in inside)
        covered += inside

    assert covered == list(best)


def test_a_wrong_result_never_wins():
    rows = rows_of({"wrong": [1.0]}, wrong=3) + rows_of({"right": [2.0]})

    assert winners(rows) == {4096: ("right",)}


@pytest.mark.parametrize("width", [80, 100])
def test_fifteen_algorithms_at_fifteen_sizes_can_be_read(width):
    names = [*(f"algorithm_{number}" for number in range(14)), "double_binary_tree"]
    rows = rows_of({name: [1.5 * 2.2**n * (k + 1) for n in range(15)] for k, name in enumerate(names)})

    text = rendered(*time_tables(rows, width), width=width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("*") == 15
    assert all(text.count(f"{name} ") >= 2 for name in names[2:])


def test_a_column_has_the_unit_of_its_fastest_time_and_the_floor_stands_below():
    first, second = rows_of({"slow": [12000.0], "quick": [1234.0]})
    floored = [Row(**{**first.__dict__, "floor_us": 1000.0}), second]

    lines = [line.split() for line in rendered(*time_tables(floored, 100)).splitlines()]

    assert lines[0] == ["algorithm", "4", "KiB"]
    assert lines[1] == ["(ms)"]
    assert lines[3:6] == [["quick", "*1.23"], ["slow", "12.00"], ["floor", "1.00"]]


def test_lines_are_in_the_order_in_which_they_end_above_the_floor():
    times = {"ring": [(1024, 1.0), (2048, 2.0)], "tree": [(1024, 0.5), (2048, 3.0)], "native": [(1024, 0.0)]}

    ((panel,),) = over_sizes(times, [(1024, 0.1), (2048, 0.0)]).rows

    assert [(line.name, line.points) for line in panel.lines] == [
        ("floor", [(1024, 0.1)]),
        ("tree", times["tree"]),
        ("ring", times["ring"]),
    ]
