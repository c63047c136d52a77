"""`testbed claims`: rows and page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli import app


def test_the_document_has_a_row_for_each_claim_that_was_asked_for() -> None:
    result = CliRunner().invoke(app, ["claims", "c13", "C8", "--json"])

    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["id"] for row in rows] == ["C8", "C13"]
    assert rows[0]["verdict"] == "holds"
    assert all(row["figure"] and row["rule"] and row["setup"] for row in rows)


def test_the_page_and_the_table_say_the_same(tmp_path: Path) -> None:
    page = tmp_path / "claims.md"

    result = CliRunner().invoke(app, ["claims", "C13", "--document", str(page)])

    assert result.exit_code == 0, result.stderr
    text = page.read_text()
    assert "## C13" in text
    for line in ("with stage 3, on 64 GPUs", "1/64.0 of"):
        assert line in text
        assert line in result.stdout


def test_what_is_not_installed_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = CliRunner().invoke(app, ["claims", "C1", "C9"])

    assert result.exit_code == 2
    assert "claim C9 needs scikit-learn" in result.stderr


@pytest.mark.slow
@pytest.mark.distributed
def test_replicas_of_a_whole_batch_agree_in_processes() -> None:
    result = CliRunner().invoke(app, ["claims", "C14", "--json"])

    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    assert row["verdict"] == "holds only if run with equal parts and no batch norm"
    assert all(case["differing"] == 0 for case in row["cases"])
