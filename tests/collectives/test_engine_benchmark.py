"""The benchmark of the engines: it measures what it says, and its document shows all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.anchors import ANCHORS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "engines.py"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import engines

    return engines


def test_a_case_runs_in_a_process_of_its_own_and_says_what_it_took() -> None:
    command = [sys.executable, str(SCRIPT), "--case", "makespan: stride", "--json"]

    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)

    (taken,) = json.loads(done.stdout)
    assert taken["time_ps"] == ANCHORS["stride"].time_ps(256, 2**30)
    assert 0 < taken["seconds"] < 60
    assert 10**7 < taken["peak_bytes"] < 10**9


def test_the_document_has_every_case_and_all_closed_forms_are_equal(engines: Any) -> None:
    lines = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8").splitlines()

    for case in engines.CASES:
        (row,) = [line for line in lines if line.startswith(f"| {case.engine} | {case.name} |")]
        assert ("| `==` |" in row) == (case.form is not None)


def test_writing_changes_what_stands_between_the_marks_and_nothing_else(engines: Any, tmp_path: Path) -> None:
    document = tmp_path / "engines.md"
    document.write_text(f"before\n{engines.BEGIN}\nold\n{engines.END}\nafter\n")

    engines.write(document, "new\n")
    engines.write(document, "newer\n")

    assert document.read_text() == f"before\n{engines.BEGIN}\nnewer\n{engines.END}\nafter\n"


def test_a_document_without_marks_is_refused(engines: Any, tmp_path: Path) -> None:
    document = tmp_path / "other.md"
    document.write_text("something else\n")

    with pytest.raises(SystemExit, match="expected one"):
        engines.write(document, "new\n")
