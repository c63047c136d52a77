"""The least of three lines, and what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.models.measured import measured_at
from sim.files.network_file import parse_network, read_network
from testbed.truth.published.fit import LEAST_SPREAD, fit_curve, fit_curves
from testbed.truth.published.measured_row import MeasuredRow
from testbed.truth.published.network_text import described_by_measurements, with_measured, without_measured

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
    table = [MeasuredRow("one", "broadcast", n, 1, 8, t) for n, t in points.items()]

    curve = fit_curve(table).curve

    for n, t in points.items():
        assert measured_at(curve, n) == pytest.approx(t, rel=1e-3)


def test_the_spread_is_that_of_rows_that_were_left_out():
    noisy = [
        MeasuredRow(row.system, row.collective, row.nbytes, 2, 16, row.seconds * (1.2 if k % 3 else 1.0))
        for k, row in enumerate(rows())
    ]

    curve = fit_curve(noisy).curve

    assert 0.1 < curve.spread < 0.7


def test_a_system_that_differs_widens_the_spread_of_both():
    fitted = fit_curve([*rows(), *rows(1.5, "two")])

    assert fitted.curve.systems == ("one", "two")
    assert fitted.curve.spread == pytest.approx(0.5, abs=0.01)
    assert len(fitted.across) == 2 * len(SIZES)


def test_a_file_of_nodes_holds_what_was_measured():
    curves = [own.curve for own in fit_curves([*rows(), *rows(2.0, nodes=4)], "somewhere")]

    network = parse_network(described_by_measurements(curves, None), "mine", "mine.toml")

    assert network.measured == tuple(curves)
    assert network.fields.source == "rates: the bus bandwidth that was reached"


def test_a_preset_keeps_its_links_and_gets_other_measurements():
    curves = [own.curve for own in fit_curves(rows())]
    text = with_measured("ethernet-10g", curves)

    network = parse_network(text, "mine", "mine.toml")

    assert network.measured == tuple(curves)
    assert network.arguments(4) == read_network("ethernet-10g").arguments(4)
    assert "[[measured]]" not in without_measured(text)
