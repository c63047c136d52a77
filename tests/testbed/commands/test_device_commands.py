"""`testbed calibrate --device` and `testbed validate --device`: files, rows and sections."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim import load_device
from testbed.cli import app
from testbed.truth.calibration.device import calibration, measuring
from testbed.truth.calibration.device.cases import cases
from testbed.truth.computation import validation


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [case for case in cases(accelerator=False) if case.name in ("product", "add")]
    few = [case for case in few if max(case.sizes.values()) <= 64 or case.sizes.keys() == {"numel"}]
    monkeypatch.setattr(measuring, "cases", lambda **_: iter(few))
    monkeypatch.setattr(calibration, "keep_memory", lambda: False)
    monkeypatch.setattr(validation, "keep_memory", lambda: False)
    monkeypatch.setattr(validation, "MODELS", {})


@pytest.mark.usefixtures("small")
def test_a_calibration_writes_a_device_file_and_says_what_it_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"

    result = CliRunner().invoke(
        app, ["calibrate", "--device", "--types", "float32", "--output", str(path), "--json"]
    )

    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["written"] == [str(path)]
    assert {row["operation"] for row in found["rows"]} == {"product", "add"}
    assert load_device(path).kernels.keys() == {("product", "float32"), ("add", "float32")}


@pytest.mark.usefixtures("small")
def test_a_calibration_prints_a_row_for_each_kind() -> None:
    result = CliRunner().invoke(app, ["calibrate", "--device", "--types", "float32"])

    assert result.exit_code == 0, result.stderr
    assert "1 thread" in result.stdout
    assert all(kind in result.stdout for kind in ("product", "add"))
