"""Few points of a test have every value; more points have it at two; processor time is counted by file."""

import subprocess
import sys
from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.budget import processor_seconds
from tests.points import MOST_COSTLY, covering

NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True)


@dataclass(eq=False)
class Point:
    """As much of a collected test as `covering` looks at."""

    nodeid: str
    params: dict[str, Any]
    marks: set[str] = field(default_factory=set)

    @property
    def callspec(self) -> SimpleNamespace:
        return SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def grid(*axes: list[Any]) -> list[Point]:
    return [Point(f"test_x[{values}]", dict(zip("xyz", values, strict=False))) for values in product(*axes)]


@given(NAMES, NAMES, st.booleans())
def test_every_value_is_at_one_point_or_more(xs, ys, costly):
    chosen = covering(grid(xs, ys), costly=costly)

    assert {point.params["x"] for point in chosen} == {*xs}
    assert {point.params["y"] for point in chosen} == {*ys}


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=30, unique=True))
def test_of_numbers_the_least_the_middle_and_the_greatest_are_taken(numbers):
    numbers.sort()

    chosen = covering(grid(numbers), costly=False)

    assert {point.params["x"] for point in chosen} == {numbers[0], numbers[len(numbers) // 2], numbers[-1]}


def test_costly_tests_come_only_where_asked_for_and_slow_ones_never():
    points = grid(["a", "b", "c"], ["d", "e", "f"])
    slow, costly = Point("test_y", {}, {"slow"}), Point("test_z", {}, {"costly"})

    few, more = (covering([*points, slow, costly], costly=asked) for asked in (False, True))

    assert few == more - {costly}
    assert few < set(points)


@given(st.integers(1, 100))
def test_of_a_costly_test_few_points_are_taken_from_the_first_on(number):
    points = [Point(f"test_x[{value}]", {"x": value}, {"costly"}) for value in map(str, range(number))]

    chosen = covering(points, costly=True)

    assert min(number, MOST_COSTLY // 2) <= len(chosen) <= MOST_COSTLY
    assert points[0] in chosen


def test_points_that_make_test_takes_are_not_left_out_where_others_of_their_test_are_costly():
    points = [
        Point(f"test_x[{x}]", {"x": x}, {"costly"} if x > "m" else set()) for x in "abcdefghijklmnopqrs"
    ]

    few, more = (covering(points, costly=asked) for asked in (False, True))

    assert few == {point for point in points if not point.marks} < more


def test_processor_time_of_processes_that_have_ended_counts():
    before = processor_seconds()

    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)

    assert processor_seconds() - before > 0.02


def test_processor_time_of_processes_that_are_alive_counts():
    before = processor_seconds()
    code = "sum(range(10**7)); print('done', flush=True); input()"

    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout.readline() == "done\n"
        spent = processor_seconds() - before
        process.communicate("\n")

    assert spent > 0.02
