"""The benchmark of the engines: it measures what it says, and its document shows all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.anchors import ANCHORS, switch
from collectives import simulate

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "benchmarks" / "engines.py"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import engines

    return engines


@pytest.mark.costly
def test_a_case_runs_in_a_process_of_its_own_and_says_what_it_took() -> None:
    command = [sys.executable, str(SCRIPT), "--case", "makespan: stride", "--json"]

    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)

    (taken,) = json.loads(done.stdout)
    assert taken["time_ps"] == ANCHORS["stride"].time_ps(256, 2**30)
    assert 0 < taken["seconds"] < 60
    assert 10**7 < taken["peak_bytes"] < 10**9


def test_jitter_is_given_as_simulate_takes_it(engines: Any) -> None:
    import engine_cases

    quiet, jittered = (
        simulate("ring", nbytes=64, topology=switch(4), **options) for options in ({}, engine_cases.JITTER)
    )

    assert quiet.time_ps < jittered.time_ps


def test_the_document_has_every_case_and_all_closed_forms_are_equal(engines: Any) -> None:
    lines = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8").splitlines()

    for case in engines.CASES:
        (row,) = [line for line in lines if line.startswith(f"| {case.engine} | {case.name} |")]
        assert ("| `==` |" in row) == (case.form is not None)


def test_what_is_measured_stands_between_the_marks_and_nothing_else_changes(
    engines: Any, tmp_path: Path
) -> None:
    document = tmp_path / "engines.md"
    document.write_text(f"before\n{engines.BEGIN}\nold\n{engines.END}\nafter\n")

    assert engines.around(document) == (f"before\n{engines.BEGIN}\n", f"{engines.END}\nafter\n")


@pytest.mark.parametrize("text", ["something else\n", None])
def test_a_document_without_marks_is_refused_before_anything_is_measured(
    text: str | None, tmp_path: Path
) -> None:
    document = tmp_path / "other.md"
    if text is not None:
        document.write_text(text)
    command = [sys.executable, str(SCRIPT), "--write", str(document)]

    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)

    assert done.returncode == 1
    assert "other.md: expected a document with one" in done.stderr
    assert done.stderr.count("\n") == 1
