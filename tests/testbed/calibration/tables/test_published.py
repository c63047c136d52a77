"""Published measurements: tables that are read, and curves that are fitted to them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.timing.formulas.measured import measured_at
from sim.topology.description import load_network, parse_network
from testbed.calibration.tables.calibration import described_by_measurements, with_measured, without_measured
from testbed.calibration.tables.fit import LEAST_SPREAD, fit_curve, fit_curves
from testbed.calibration.tables.rows import MeasuredRow
from testbed.calibration.tables.tables import read_table
from testbed.errors import UsageError
from testbed.options.arguments import TableOptions


@pytest.fixture
def read(tmp_path):
    """Return the rows of a table with such a text, called ``mine``."""

    def rows_of(text, suffix=".csv", *said):
        file = tmp_path / f"mine{suffix}"
        file.write_text(text)
        return read_table(file, *said)

    return rows_of


def test_a_csv_may_leave_collective_and_ranks_to_a_file_of_systems_beside_it(read, tmp_path):
    (tmp_path / "systems.yaml").write_text(
        "mine:\n  collective: alltoall\n  ranks: 16\n  hardware:\n    gpu: H100\n    nodes: 2\n"
    )

    rows = read("set,size_bytes,time_us,busbw_gbs\nmine,1024,12.5,\nmine,2048,,\n")

    assert rows == [MeasuredRow("mine", "all_to_all", 1024, 2, 16, pytest.approx(12.5e-6), line=2)]


BENCH_ROW = {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 7.0}


@pytest.mark.parametrize(
    ("text", "said", "row"),
    [
        (
            "collective,nbytes,ranks,nodes,seconds\nall-reduce,1024,8,1,1e-5\n",
            TableOptions(),
            MeasuredRow("mine", "all_reduce", 1024, 1, 8, 1e-5, line=2),
        ),
        (
            json.dumps({"transport": "gloo", "ranks": 4, "rows": [BENCH_ROW]}),
            TableOptions(nodes=2),
            MeasuredRow("mine", "all_reduce", 1024, 2, 4, pytest.approx(7e-6), "ring", 1),
        ),
    ],
)
def test_what_a_table_does_not_say_options_do(read, text, said, row):
    assert read(text, ".csv", said) == [row]


SAYS_ALL = "collective,ranks,size_bytes,time_us\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "line 1: expected a column size_bytes or nbytes"),
        ("size_bytes,time_us\n1024,3\n", "line 2: nothing says the collective of mine"),
        (SAYS_ALL + "all_reduce,8,1K,3\n", "line 2: size_bytes: .*number, got '1K'"),
        (SAYS_ALL + "all_sum,8,1,3\n", "line 2: collective: .*got 'all_sum'"),
        (SAYS_ALL + "all_reduce,8.5,1,3\n", "line 2: ranks: .*whole number, got 8.5"),
        (SAYS_ALL + "all_reduce,8,1,nan\n", "line 2: time: .*finite number"),
        (SAYS_ALL + "all_reduce,8,1,1e99\n", "line 2: time: .*1000000, got"),
        ('{"transport": "gloo", "ranks": -2, "rows": []}', "ranks: .*greater than or equal to 1"),
        ("collective,ranks,nodes,size_bytes,time_us\nall_reduce,9,2,1,3\n", "9 ranks on 2 nodes"),
        ("size_bytes,time_us\n", "expected rows .* found none"),
        ('{"transport": "sim", "ranks": 2, "rows": []}', "its times are simulated"),
        ('{"ranks": 2}', "expected what testbed bench --json prints"),
        ('{"identifier": "nccl-tests structured output"}', r"or a file of nccl-tests \(-J, with config and"),
        (SAYS_ALL + "all_reduce,8,0,3\n", "size above 0 bytes, found none"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(read, text, said):
    with pytest.raises(UsageError, match=said):
        read(text)


LINES = ((10e-6, 1e9), (40e-6, 2e10), (200e-6, 2e11))
SIZES = [2**k for k in range(6, 31, 2)]


def rows(factor=1.0, system="one", nodes=2):
    return [
        MeasuredRow(system, "all_reduce", n, nodes, 8 * nodes, factor * min(a + n / b for a, b in LINES))
        for n in SIZES
    ]


def test_three_lines_are_found_again():
    fitted = fit_curve(rows())

    assert [(own.latency_ps, own.bandwidth) for own in fitted.curve.lines] == [
        (pytest.approx(a * 1e12, rel=1e-3), pytest.approx(b, rel=1e-3)) for a, b in LINES
    ]
    assert fitted.curve.spread == fitted.curve.spread_large == LEAST_SPREAD
    assert (fitted.curve.num_nodes, fitted.curve.ranks_per_node, fitted.num_rows) == (2, 8, len(SIZES))


@given(
    st.dictionaries(st.integers(1, 2**34), st.floats(1e-6, 1), min_size=1, max_size=9),
)
def test_a_curve_goes_through_the_points_that_it_was_fitted_to(points):
    points = dict(zip(sorted(points), sorted(points.values()), strict=True))
    table = [MeasuredRow("one", "broadcast", n, 1, 8, t) for n, t in points.items()]

    curve = fit_curve(table).curve

    for n, t in points.items():
        assert measured_at(curve, n) == pytest.approx(t, rel=1e-3)


@given(st.integers(0, len(SIZES) - 2), st.floats(1.3, 10))
def test_a_time_far_above_that_of_a_larger_size_is_not_believed(place, longer):
    table = rows()
    table[place] = replace(table[place], seconds=longer * table[place + 1].seconds)

    assert measured_at(fit_curve(table).curve, SIZES[place]) == pytest.approx(
        table[place + 1].seconds, rel=1e-3
    )


def test_the_spread_is_that_of_rows_that_were_left_out_and_of_systems_that_differ():
    noisy = [replace(row, seconds=row.seconds * (1.2 if k % 3 else 1.0)) for k, row in enumerate(rows())]

    of_rows, of_systems = fit_curve(noisy).curve, fit_curve([*rows(), *rows(1.5, "two")])

    assert 0.1 < of_rows.spread < 0.7
    assert of_systems.curve.systems == ("one", "two")
    assert of_systems.curve.spread == pytest.approx(0.5, abs=0.01)
    assert len(of_systems.across) == 2 * len(SIZES)


def test_a_file_of_nodes_holds_what_was_measured():
    curves = [own.curve for own in fit_curves([*rows(), *rows(2.0, nodes=4)], "somewhere")]

    network = parse_network(described_by_measurements(curves, None), "mine", "mine.toml")

    assert network.topology(4).measured == tuple(curves)
    assert network.fields.source == "rates: the bus bandwidth that was reached"


def test_a_preset_keeps_its_links_and_gets_other_measurements():
    curves = [own.curve for own in fit_curves(rows())]
    text = with_measured("ethernet-10g", curves)

    network = parse_network(text, "mine", "mine.toml")

    assert network.topology(4).measured == tuple(curves)
    assert network.layout(4).links == load_network("ethernet-10g").layout(4).links
    assert "[[measured]]" not in without_measured(text)
