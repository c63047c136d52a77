"""NCCL's model beside published measurements, as `benchmarks/nccl_model.py` prints it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from statistics import median
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "nccl_model.py"))


def test_from_a_gibibyte_on_hopper_and_ampere_all_but_a_forced_ring_are_within_seven_percent(
    benchmark: dict[str, Any],
) -> None:
    rows = [
        row
        for row in benchmark["comparisons"]()
        if row.nbytes >= 2**30 and "b200" not in row.system and "ar_h100_ib400_2n_b_ring" not in row.system
    ]

    assert len(rows) > 20
    assert max(abs(row.error) for row in rows) < 0.07
    assert median(abs(row.error) for row in rows) < 0.02


def test_the_document_shows_what_the_benchmark_prints(
    benchmark: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark["main"]()

    printed = set(re.findall(r"^\|.*\|$", capsys.readouterr().out, re.MULTILINE))
    shown = set(re.findall(r"^\|.*\|$", (ROOT / "docs" / "nccl_model.md").read_text(), re.MULTILINE))
    assert printed <= shown
