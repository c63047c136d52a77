"""Intervals from measured rows: they hold nine of ten of groups that were left out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab.intervals import HELD, Row, collectives, interval_of
from testbed.calibration.confidence import known_families
from testbed.output.table import grouped

FACTORS = st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=12), min_size=2, max_size=6)


def rows_of(groups):
    """Return rows with these factors, a group of each list."""
    return [Row("family", str(number), factor) for number, own in enumerate(groups) for factor in own]


@given(FACTORS)
def test_an_interval_holds_nine_of_ten_rows_that_were_left_out(groups):
    """Among them the rows of a group that is unlike all others."""
    own = interval_of(rows_of(groups))
    assert own["held"] >= HELD
    assert own["low"] <= own["high"]
    assert (own["rows"], own["groups"]) == (sum(map(len, groups)), len(groups))


@given(FACTORS, st.floats(-1, 1))
def test_what_is_wrong_by_one_factor_moves_the_interval_by_it(groups, shift):
    """Whatever the groups, and in whatever order they come."""
    own = interval_of(rows_of(groups))
    moved = interval_of(rows_of([[factor + shift for factor in one] for one in reversed(groups)]))
    for end in ("low", "high"):
        assert math.log(moved[end]) == pytest.approx(math.log(own[end]) + shift, abs=1e-6)


@pytest.mark.costly
def test_families_of_collectives_are_those_that_the_published_rows_give_now():
    """What has changed a prediction of them changes the file, too: ``python -m benchmarks.lab.intervals``."""
    for name, rows in grouped(collectives(), lambda row: row.family).items():
        assert known_families()[name] == pytest.approx(interval_of(rows), abs=5e-5)
