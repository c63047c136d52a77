"""`testbed validate`: what cannot be done is said before anything is built, with exit code 2."""

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


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(str(result.stderr).split())


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(built.shutil, "which", lambda name: name)

    assert "need root" in refused("--shaped", STAR)


def test_a_file_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ring.toml"
    file.write_text('schema = 1\nkind = "ring"\nnum_ranks = 4\nbandwidth = "80Mbps"\nlatency = "1us"\n')
    assert "ring.toml: ring: messages from rank 0 to rank 2 pass through" in refused("--shaped", str(file))

    assert "of any size; say num_ranks" in refused("--shaped", "switch-100g")
    assert "no_such.toml" in refused("--shaped", "no_such.toml")


def test_shaped_and_files_go_together() -> None:
    assert "name at least one network file" in refused("--shaped")
    assert "go with --shaped" in refused(STAR)


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
