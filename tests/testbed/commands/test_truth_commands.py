"""`testbed calibrate` and `testbed validate`: what they measure, write and lack."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sim import load_device
from testbed.calibration.device import calibration, measuring
from testbed.calibration.device.cases import cases
from testbed.calibration.judge import steps
from testbed.calibration.live.calibration import Calibration
from testbed.cli import app
from tests.commands import reported


def test_another_number_of_ranks_than_torchrun_has_started_is_refused():
    result = CliRunner(env={"RANK": "0", "WORLD_SIZE": "4"}).invoke(app, ["calibrate", "--ranks", "3"])

    assert result.exit_code == 2
    assert "--ranks 3, but torchrun has started 4" in result.stderr


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_are_measured_and_their_network_is_written(tmp_path):
    output, plot = tmp_path / "mine.toml", tmp_path / "mine.png"
    command = [sys.executable, "-m", "testbed", "calibrate", "--ranks", "2", "--seconds", "6", "--json"]
    command += ["--output", str(output), "--plot", str(plot)]

    finished = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)

    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    calibration = Calibration.read(output)
    assert document["method"] == ["measured", "simulated"]
    assert calibration.classes.keys() == {"inside_node"}
    assert calibration.origin.num_rows == len(document["rows"])
    assert plot.stat().st_size > 10_000


@pytest.fixture
def small(monkeypatch):
    few = [case for case in cases(accelerator=False) if case.name in ("product", "add")]
    few = [case for case in few if max(case.sizes.values()) <= 64 or case.sizes.keys() == {"numel"}]
    monkeypatch.setattr(measuring, "cases", lambda **_: iter(few))
    monkeypatch.setattr(calibration, "keep_memory", lambda: False)
    monkeypatch.setattr(steps, "keep_memory", lambda: False)
    monkeypatch.setattr(steps, "MODELS", {})


@pytest.mark.usefixtures("small")
def test_a_calibration_writes_a_device_file_and_says_what_it_found(tmp_path):
    path = tmp_path / "mine.toml"

    found = reported(f"calibrate --device --types float32 --output {path}")

    assert found["written"] == [str(path)]
    assert {row["operation"] for row in found["rows"]} == {"product", "add"}
    assert load_device(path).kernels.keys() == {("product", "float32"), ("add", "float32")}
