"""Benchmarks of the engines: what cases and fast paths take, and the document that shows it."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.anchors import ANCHORS

ROOT = Path(__file__).parents[3]

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("engines")


@pytest.fixture
def fast_paths(engines: ModuleType) -> ModuleType:
    return import_module("fast_paths")


@pytest.mark.costly
def test_a_case_runs_in_a_process_of_its_own_and_says_what_it_took():
    command = [sys.executable, str(BENCHMARKS / "engines.py"), "--case", "makespan: stride", "--json"]

    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)

    (taken,) = json.loads(done.stdout)
    assert taken["time_ps"] == ANCHORS["stride"].time_ps(256, 2**30)
    assert 0 < taken["seconds"] < 60
    assert 10**7 < taken["peak_bytes"] < 10**9


def test_the_document_has_every_case_and_all_closed_forms_are_equal(engines):
    lines = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8").splitlines()

    for case in engines.CASES:
        (row,) = [line for line in lines if line.startswith(f"| {case.engine} | {case.name} |")]
        assert ("| `==` |" in row) == (case.form is not None)


def test_what_is_measured_goes_between_the_marks_of_a_document_and_into_no_other(engines, tmp_path):
    document = tmp_path / "engines.md"
    document.write_text(f"before\n{engines.BEGIN}\nold\n{engines.END}\nafter\n")

    assert engines.around(document) == (f"before\n{engines.BEGIN}\n", f"{engines.END}\nafter\n")
    with pytest.raises(SystemExit, match=r"other\.md: expected a document with one"):
        engines.around(tmp_path / "other.md")


def test_without_a_fast_path_the_time_is_the_same_and_the_work_three_times_as_much(fast_paths):
    for path in fast_paths.FAST_PATHS:
        time_ps, work = path.counted(off=False)
        without_ps, without = path.counted(off=True)

        assert time_ps == without_ps, path.name
        assert without >= max(1, fast_paths.WORTH * work), f"{path.name}: with it {work}, without {without}"


def test_a_fast_path_names_a_row_of_the_benchmark(fast_paths):
    rows = fast_paths.every_case()

    assert [path.name for path in fast_paths.FAST_PATHS if path.row not in rows] == []
