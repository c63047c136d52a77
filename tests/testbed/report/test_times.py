"""Tables and plots of times: who wins, at which sizes, and that all of it can be read."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from testbed.benchmarking.candidates import BenchRequest, TransportName
from testbed.benchmarking.measure import Row, row
from testbed.output.table import spell_size
from testbed.plots.figure import NoFigure, over_sizes
from testbed.report.bench import fastest_ranges, fastest_table, time_tables, winners
from testbed.result import Part
from testbed.result.parts import show_parts


def rendered(*parts: Part, width: int = 100) -> str:
    stream = io.StringIO()
    show_parts(Console(file=stream, width=width), parts)
    return stream.getvalue()


def rows_of(times: dict[str, list[float]], wrong: int = 0) -> list[Row]:
    """Return rows of 4 KiB, 8 KiB and so on, with these microseconds."""
    request = BenchRequest(TransportName.SIM, 4, "all_reduce", (), (), "float32", 1, 0, 1.0)
    return [
        row(request, name, 1024 << number, microseconds / 1e6, wrong)
        for name, line in times.items()
        for number, microseconds in enumerate(line)
    ]


def test_ranges_of_sizes_are_merged_where_the_winner_stays() -> None:
    rows = rows_of({"ring": [9, 8, 3, 2], "tree": [1, 2, 4, 8]})

    assert fastest_ranges(rows) == [(4096, 8192, ("tree",)), (16384, 32768, ("ring",))]
    assert rendered(fastest_table(rows)).split("\n")[2].split() == ["4", "KiB", "–", "8", "KiB", "tree"]


def test_those_who_tie_share_a_range_as_long_as_they_all_win() -> None:
    rows = rows_of({"a": [1, 1, 1], "b": [1, 1, 2], "c": [2, 2, 1]})

    assert fastest_ranges(rows) == [(4096, 16384, ("a",))]
    assert winners(rows) == {4096: ("a", "b"), 8192: ("a", "b"), 16384: ("a", "c")}


times = st.lists(st.integers(1, 4).map(float), min_size=5, max_size=5)


@given(st.dictionaries(st.sampled_from("abcd"), times, min_size=1))
def test_whoever_stands_for_a_range_is_fastest_at_each_of_its_sizes(measured: dict[str, list[float]]) -> None:
    rows = rows_of(measured)
    best = winners(rows)

    covered: list[int] = []
    for first, last, names in fastest_ranges(rows):
        inside = [size for size in best if first <= size <= last]
        assert all(set(names) <= set(best[size]) for size in inside)
        covered += inside

    assert covered == list(best)


def test_a_wrong_result_never_wins() -> None:
    rows = rows_of({"wrong": [1.0]}, wrong=3) + rows_of({"right": [2.0]})

    assert winners(rows) == {4096: ("right",)}


@pytest.mark.parametrize("width", [80, 100])
def test_fifteen_algorithms_at_fifteen_sizes_can_be_read(width: int) -> None:
    names = [*(f"algorithm_{number}" for number in range(14)), "double_binary_tree"]
    rows = rows_of({name: [1.5 * 2.2**n * (k + 1) for n in range(15)] for k, name in enumerate(names)})

    text = rendered(*time_tables(rows, width), width=width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("*") == 15
    assert all(text.count(f"{name} ") >= 2 for name in names[2:])


def test_a_column_has_the_unit_of_its_fastest_time_and_the_floor_stands_below() -> None:
    first, second = rows_of({"slow": [12000.0], "quick": [1234.0]})
    floored = [Row(**{**first.__dict__, "floor_us": 1000.0}), second]

    lines = [line.split() for line in rendered(*time_tables(floored, 100)).splitlines()]

    assert lines[0] == ["algorithm", "4", "KiB"]
    assert lines[1] == ["(ms)"]
    assert lines[3:6] == [["quick", "*1.23"], ["slow", "12.00"], ["floor", "1.00"]]


def test_a_name_in_brackets_is_printed_as_it_is() -> None:
    rows = rows_of({"mine.py:[own]": [1.0], "ring": [2.0]})

    assert "mine.py:[own]" in rendered(*time_tables(rows, 100), fastest_table(rows))


def test_a_size_is_spelt_to_three_digits() -> None:
    sizes = {5: "5 B", 4092: "4 KiB", 3900: "3.81 KiB", 1048572: "1 MiB", 2**26: "64 MiB", 3 << 30: "3 GiB"}

    assert {nbytes: spell_size(nbytes) for nbytes in sizes} == sizes


def test_of_one_size_there_is_no_curve() -> None:
    with pytest.raises(NoFigure, match="one size is no curve"):
        over_sizes({"ring": [(1024, 1.0)]}, ())


def test_lines_are_in_the_order_in_which_they_end_above_the_floor() -> None:
    times = {"ring": [(1024, 1.0), (2048, 2.0)], "tree": [(1024, 0.5), (2048, 3.0)], "native": [(1024, 0.0)]}

    ((panel,),) = over_sizes(times, [(1024, 0.1), (2048, 0.0)]).rows

    assert [(line.name, line.points) for line in panel.lines] == [
        ("floor", [(1024, 0.1)]),
        ("tree", times["tree"]),
        ("ring", times["ring"]),
    ]
