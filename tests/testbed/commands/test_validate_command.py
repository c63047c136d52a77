"""`testbed validate`: what a machine lacks is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from testbed.cli import app
from testbed.truth.shaped import built

STAR = "examples/networks/shaped/four_equal.toml"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["validate", *arguments])


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(built.shutil, "which", lambda name: name)

    result = run("--shaped", STAR)

    assert result.exit_code == 2
    assert "need root" in " ".join(result.stderr.split())


def test_without_matplotlib_it_goes_on_and_says_that_nothing_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(rows=(), as_json=dict)
    monkeypatch.setattr("testbed.output.figure.is_installed", lambda _: False)
    monkeypatch.setattr(built, "check_possible", lambda: None)
    monkeypatch.setattr("testbed.truth.shaped.plain.calibrate_plain", lambda _: nothing)
    monkeypatch.setattr("testbed.truth.shaped.validation.validate", lambda *_: nothing)
    monkeypatch.setattr("testbed.report.shaped.as_document", lambda *_: {})

    finished = run("--shaped", STAR, "--output", str(tmp_path), "--json")

    assert finished.exit_code == 0, finished.stderr
    assert "No picture was drawn: plots need matplotlib" in finished.stderr
