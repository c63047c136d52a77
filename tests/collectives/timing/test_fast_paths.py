"""Fast paths of the engines (`benchmarks/fast_paths.py`): each changes no result, and saves work."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def fast_paths(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fast_paths

    return fast_paths


def test_without_a_fast_path_the_time_is_the_same_and_the_work_three_times_as_much(fast_paths):
    for path in fast_paths.FAST_PATHS:
        time_ps, work = path.counted(off=False)
        without_ps, without = path.counted(off=True)

        assert time_ps == without_ps, path.name
        assert without >= max(1, fast_paths.WORTH * work), f"{path.name}: with it {work}, without {without}"


def test_a_fast_path_names_a_row_of_the_benchmark(fast_paths):
    rows = fast_paths.every_case()

    assert [path.name for path in fast_paths.FAST_PATHS if path.row not in rows] == []
