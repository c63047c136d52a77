"""Rates of kernels by shape: exact where measured, between neighbours elsewhere, and told where neither."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import KernelTable
from sim.units import SECOND

AXES = {"m": (4, 64, 1024), "k": (16, 256)}
SIZES = st.fixed_dictionaries({name: st.integers(1, 5000) for name in AXES})
RATES = st.tuples(*[st.integers(1, 10**15)] * 6)


def table(rates):
    return KernelTable("product", "float32", "arithmetic", AXES, rates, launch_ps=7)


@given(RATES)
def test_on_the_grid_the_rate_is_the_measured_one(rates):
    shapes = [{"m": m, "k": k} for m in AXES["m"] for k in AXES["k"]]

    assert tuple(table(rates).rate(shape) for shape in shapes) == rates


@given(RATES, SIZES)
def test_a_rate_lies_between_the_measured_ones(rates, shape):
    assert min(rates) * (1 - 1e-9) <= table(rates).rate(shape) <= max(rates) * (1 + 1e-9)


@given(SIZES)
def test_outside_of_the_measured_shapes_the_nearest_one_counts_and_it_is_told(shape):
    rates = (1, 10, 100, 1000, 10**4, 10**5)
    nearest = {name: min(max(shape[name], sizes[0]), sizes[-1]) for name, sizes in AXES.items()}

    assert table(rates).rate(shape) == table(rates).rate(nearest)
    assert table(rates).covers(shape) == (shape == nearest)


def test_between_two_sizes_the_rate_is_linear_in_logarithms():
    rates = (10, 1000, 10, 1000, 10, 1000)

    assert table(rates).rate({"m": 7, "k": 64}) == pytest.approx(100)  # halfway from 16 to 256


def test_a_kernel_takes_its_work_at_the_rate_and_a_launch():
    rates = (1000,) * 6

    assert table(rates).duration_ps(5000, {"m": 4, "k": 16}) == 5 * SECOND + 7


@pytest.mark.parametrize(
    ("axes", "rates", "said"),
    [
        ({"m": ()}, (), "axis m: expected ascending sizes"),
        ({"m": (2, 2)}, (1, 1), "axis m: expected ascending sizes"),
        ({"m": (0, 2)}, (1, 1), "axis m: expected ascending sizes of at least 1"),
        ({"m": (1, 2)}, (1,), "a rate for each of the 2 shapes, got 1"),
        ({"m": (1,)}, (0,), "rates of at least 1"),
    ],
)
def test_a_table_that_is_no_grid_is_refused(axes, rates, said):
    with pytest.raises(ValueError, match=said):
        KernelTable("product", "float32", "arithmetic", axes, rates)
