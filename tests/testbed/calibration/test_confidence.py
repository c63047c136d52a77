"""Confidence in predictions: intervals of families that were measured, and errors of rows beside theirs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed
from collectives.timing import Assumptions
from sim import load_network
from testbed.calibration.confidence import (
    SMALL,
    Compared,
    Errors,
    figures_by_size,
    interval,
    interval_of_step,
    known_families,
    worst,
)
from testbed.output.table import grouped


def test_what_ships_was_measured_in_groups_and_held_of_those_left_out():
    """Every family of the file."""
    for name, own in known_families().items():
        assert 0 < own["low"] < own["high"], name
        assert own["rows"] >= own["groups"] >= 1, name
        assert own.get("held", 0.9) >= 0.9, name


@given(st.floats(1e-6, 1e3), st.floats(0.01, 0.5))
def test_a_step_that_is_less_sure_has_a_wider_interval(seconds, deviation):
    """In proportion to the prediction."""
    sure, less = (interval("layout on one node", seconds, times * deviation) for times in (1, 2))
    assert less.low < sure.low < sure.high < less.high
    assert less.high / seconds == pytest.approx((sure.high / seconds) ** 2)


def test_only_what_is_expected_of_a_real_run_has_an_interval():
    """Neither links alone, nor one rank, nor chosen terms; and no step is below what it computes."""
    several, one = (load_network("dgx-h100").topology(ranks) for ranks in (16, 1))
    real, ideal = Assumptions.of_a_real_run(several), Assumptions.ideal()
    assert interval_of_step(0.1, 0.09, ideal, several) is None
    assert interval_of_step(0.1, 0.1, real, one) is None
    assert interval_of_step(0.1, 0.09, real.with_(inefficiencies=("late",)), several) is None
    found = interval_of_step(0.1, 0.09, real, several)
    assert found.low == 0.09


def test_what_nccl_expects_and_what_is_likely_of_it_have_intervals_of_their_own():
    asked = {"network": "dgx-h100", "ranks": 24, "nbytes": "1M", "collective": "all_to_all"}

    likely = testbed.simulate("nccl", **asked).rows.rows[0]
    expected = testbed.simulate("nccl", model="nccl", **asked).rows.rows[0]

    assert likely["model"] == expected["model"] == "nccl"
    assert likely["interval_from"].startswith("library, to 16 MiB")
    assert expected["interval_from"].startswith("nccl, to 16 MiB")
    assert likely["high"] / likely["seconds"] < expected["high"] / expected["seconds"]


def test_commands_say_how_sure_one_step_is_alike():
    """`scale` and `plan`, of what they were asked; and `simulate` of a collective."""
    asked = {"profile": "resnet50", "network": "dgx-h100", "ranks": "16", "strategy": "wait_free"}
    rows = [
        testbed.scale(**asked).rows.rows[0],
        testbed.plan(**asked).rows.rows[0],
    ]
    assert len({(row["low"], row["high"], row["interval_from"]) for row in rows}) == 1
    assert rows[0]["low"] < rows[0]["seconds"] < rows[0]["high"]
    measured = testbed.simulate("nccl", network="dgx-h100", ranks=16, nbytes="64M").rows.rows[0]
    assert measured["low"] < measured["seconds"] < measured["high"]


times = st.floats(1e-6, 1e3)
rows = st.lists(st.builds(Compared, times, times, interval=st.none() | st.tuples(times, times)), max_size=20)


@given(rows)
def test_errors_lie_in_their_order_and_the_worst_is_that_of_a_row(known):
    errors = Errors.of(known)
    if errors is None:
        assert known == []
        assert set(figures_by_size([], lambda _: 0).values()) == {0, None}
        return
    assert errors.num_rows == len(known)
    assert 0 <= errors.median <= errors.ninth <= abs(errors.worst)
    assert abs(errors.bias) <= abs(errors.worst)
    assert sum(abs(row.error) <= errors.ninth for row in known) >= 0.9 * len(known)
    assert errors.worst == worst(known, 1)[0].error
    held = [row.held for row in known if row.interval is not None]
    assert errors.held == (sum(map(bool, held)) / len(held) if held else None)


@given(rows)
def test_sizes_are_judged_apart(known):
    sizes = {id(row): SMALL - number % 2 for number, row in enumerate(known)}
    found = figures_by_size(known, lambda row: sizes[id(row)])

    large, small = Errors.of(known[::2]), Errors.of(known[1::2])
    assert found["median_error"] == (large and large.median)
    assert found["small_median_error"] == (small and small.median)


@given(st.lists(st.integers()))
def test_groups_have_all_in_their_order(numbers):
    groups = grouped(numbers, lambda number: str(number % 3))

    assert sorted(number for own in groups.values() for number in own) == sorted(numbers)
    assert all(own == [number for number in numbers if str(number % 3) == key] for key, own in groups.items())
