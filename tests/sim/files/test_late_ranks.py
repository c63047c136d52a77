"""The slowest of several GPUs computes longer than their mean by an expected maximum."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_device
from sim.files.inefficiency_table import inefficiency_table
from sim.files.late_ranks import expected_maximum, slowest_of, slowest_on


def test_the_expected_maximum_is_that_of_the_textbook():
    assert expected_maximum(1) == pytest.approx(0, abs=1e-9)
    assert expected_maximum(2) == pytest.approx(1 / sqrt(pi), abs=1e-6)
    assert expected_maximum(3) == pytest.approx(3 / (2 * sqrt(pi)), abs=1e-6)
    assert all(a < b for a, b in pairwise(map(expected_maximum, (4, 8, 64, 1024))))


def test_the_slowest_of_two_is_slower_than_the_mean_by_its_deviation_over_the_root_of_pi():
    assert slowest_of(1) == 1
    assert float(slowest_of(2) - 1) == pytest.approx(
        float(inefficiency_table().late_deviation) / sqrt(pi), rel=1e-5
    )


@given(fitted=st.integers(1, 4096), num_ranks=st.integers(1, 4096))
def test_rates_that_were_fitted_to_steps_of_several_ranks_have_their_slowest_in_themselves(fitted, num_ranks):
    device = replace(load_device("h100"), fitted_ranks=fitted)

    slowest = slowest_on(device, num_ranks)

    assert (slowest > 1) is (num_ranks > fitted)
    if num_ranks > fitted:
        assert slowest * slowest_of(fitted) == slowest_of(num_ranks)
    else:
        assert slowest == Fraction(1)
