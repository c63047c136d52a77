"""Units as people write them: exact whole numbers, with durations rounded up in one place."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import SimulationError, TopologyError, UnitError
from sim.units import (
    SECOND,
    format_bandwidth,
    format_size,
    format_time,
    is_whole,
    parse_bandwidth,
    parse_count,
    parse_rate,
    parse_size,
    parse_time,
    to_seconds,
    transfer_ps,
)

LIMIT = 9_223_372_036_854  # what transfer_ps takes in arrays: (2**63 - 1) // 10**6


# fmt: off
READ = {
    parse_bandwidth: {
        "100Gbps": 12_500_000_000, "100 Gb/s": 12_500_000_000, "0.1Tbit/s": 12_500_000_000,
        "100gbps": 12_500_000_000, "300GB/s": 300_000_000_000, "2.5MBps": 2_500_000, "1GiB/s": 2**30,
        "8bps": 1, "12.5e9": 12_500_000_000, 12.5e9: 12_500_000_000, 1e10 / 3: 3_333_333_333, 8: 8,
        np.int64(7): 7,
    },
    parse_time: {
        "2us": 2_000_000, "2\u00b5s": 2_000_000, "2\u03bcs": 2_000_000, "500ns": 500_000, "3 s": 3 * SECOND,
        "1.5ms": 1_500_000_000, "7ps": 7, "1e-6": 1_000_000, 3e-6: 3_000_000, np.float64(2e-6): 2_000_000,
        0.1: 10**11, 3: 3 * SECOND, 0: 0, "0.5ps": 1,
    },
    parse_size: {
        "4K": 4096, "4k": 4096, "64M": 2**26, "25MiB": 25 * 2**20, "1GB": 2**30, "0.5K": 512, "12": 12,
        "12B": 12, 12: 12, 4096.0: 4096, 0: 0,
    },
    parse_rate: {"989.4TFLOP/s": 989_400_000_000_000, 1e9: 10**9, "3 kflop/s": 3000},
}
"""What may be written, and the bytes per second, picoseconds, or bytes in powers of 1024 that it means."""
GARBAGE = (
    "", "fast", "1 2", "nan", "inf", "1e9999", "12Gbpss", "--3", math.nan, math.inf, True, None, [1],
    "-1", -1, -0.5,
)
# fmt: on


@pytest.mark.parametrize("parse", READ, ids=lambda parse: parse.__name__)
def test_a_quantity_is_a_whole_number_however_it_is_written(parse):
    read = {text: parse(text) for text in READ[parse]}

    assert read == READ[parse]
    assert {type(value) for value in read.values()} == {int}


@pytest.mark.parametrize("parse", READ, ids=lambda parse: parse.__name__)
def test_what_cannot_be_read_or_no_array_could_hold_is_refused_by_name(parse):
    for garbage in GARBAGE:
        with pytest.raises(UnitError, match="the thing: ") as raised:
            parse(garbage, "the thing")

        assert repr(garbage) in str(raised.value)
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value, SimulationError)
    for huge in ("1e300", 1e300, 2**70):
        with pytest.raises(UnitError, match=r"the thing: .* is too large"):
            parse(huge, "the thing")


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_bandwidth, [0, "0Gbps", "1bps", "12.5G", "5K", "1kib/s/s", "10Hz"]),
        (parse_size, ["0.3K", "1iB"]), (parse_time, ["2h"]), (parse_rate, ["0", "1TFLOPS/h", "1TB/s"]),
    ],
)  # fmt: skip
def test_what_has_another_unit_or_comes_to_no_whole_number_is_refused(parse, texts):
    for text in texts:
        with pytest.raises(UnitError, match=parse.__name__.removeprefix("parse_")):
            parse(text)


@given(st.integers(1, 10**15))
def test_seconds_as_floats_come_back_exactly(duration_ps):
    assert parse_time(to_seconds(duration_ps)) == duration_ps


@given(st.integers(0, 2**50), st.integers(1, 10**13))
def test_a_transfer_takes_the_exact_time_rounded_up(nbytes, bandwidth):
    assert transfer_ps(nbytes, bandwidth) == math.ceil(Fraction(nbytes * SECOND, bandwidth))


@given(st.lists(st.tuples(st.integers(0, LIMIT), st.integers(2 * 10**6, LIMIT)), max_size=20))
def test_arrays_and_ints_take_the_same_time(transfers):
    nbytes = np.array([n for n, _ in transfers], dtype=np.int64)
    bandwidth = np.array([b for _, b in transfers], dtype=np.int64)

    together = transfer_ps(nbytes, bandwidth)

    assert together.dtype == np.int64
    assert together.tolist() == [transfer_ps(n, b) for n, b in transfers]
    assert transfer_ps(nbytes, LIMIT).tolist() == [transfer_ps(n, LIMIT) for n, _ in transfers]
    assert transfer_ps(2**20, bandwidth).tolist() == [transfer_ps(2**20, b) for _, b in transfers]


@pytest.mark.parametrize(
    ("nbytes", "bandwidth", "said"),
    [(LIMIT + 1, 10**9, "nbytes"), (1, LIMIT + 1, "bandwidth"), (LIMIT, 1, "too long")],
)
def test_arrays_refuse_what_64_bits_cannot_hold(nbytes, bandwidth, said):
    with pytest.raises(UnitError, match=said):
        transfer_ps(np.array([nbytes]), bandwidth)


@given(st.integers(0, 999), st.sampled_from(["", "K", "M", "G", "T"]))
def test_a_formatted_size_reads_back(number, prefix):
    nbytes = parse_size(f"{number}{prefix}")

    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_size(25 * 2**20), "25 MiB"), (format_size(1023), "1023 B"),
        (format_size(1000 * 2**20 + 1), "1000 MiB"), (format_time(1_500_000_000), "1.5 ms"),
        (format_time(0), "0 ps"), (format_time(12_345_678), "12.35 us"),
        (format_bandwidth(12_500_000_000), "12.5 GB/s"),
    ],
)  # fmt: skip
def test_quantities_are_printed_in_the_unit_that_fits(text, expected):
    assert text == expected


@pytest.mark.parametrize(("value", "least"), [(1, 1), (2**70, 1), (np.int32(3), 1), (np.uint8(7), 1), (0, 0)])
def test_a_count_is_a_whole_number_of_python_or_numpy(value, least):
    count = parse_count(value, "num_ranks", least=least)

    assert count == value
    assert type(count) is int
    assert is_whole(value)


@pytest.mark.parametrize(
    ("value", "least"), [*((wrong, 1) for wrong in (0, -1, True, 1.0, "1", None, np.bool_(True))), (-1, 0)]
)
def test_what_is_no_count_is_refused_with_what_it_was_to_count(value, least):
    with pytest.raises(TopologyError, match=f"^seed: expected a whole number of at least {least}, got "):
        parse_count(value, "seed", least=least)
