import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.memory.held_storage import binary

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@given(st.one_of(st.integers(1, 4096), st.integers(1, 2**40)))
def test_bytes_are_told_in_the_largest_unit_of_which_there_is_more_than_one(nbytes):
    number, unit = binary(nbytes).split()

    assert float(number) * UNITS[unit] == pytest.approx(nbytes, abs=0.005 * UNITS[unit])
    assert nbytes > UNITS[unit] or unit == "bytes"
    assert unit == "GiB" or nbytes <= 2**10 * UNITS[unit]
