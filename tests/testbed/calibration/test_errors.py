"""Rows beside their measurements, and their errors."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.calibration.confidence import SMALL, Compared, Errors, figures_by_size, worst
from testbed.output.table import grouped

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
