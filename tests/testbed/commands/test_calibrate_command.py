"""`testbed calibrate` of a network: what it measures and writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from testbed.cli import app
from testbed.truth.calibration.calibration import Calibration


def test_another_number_of_ranks_than_torchrun_has_started_is_refused() -> None:
    result = CliRunner(env={"RANK": "0", "WORLD_SIZE": "4"}).invoke(app, ["calibrate", "--ranks", "3"])

    assert result.exit_code == 2
    assert "--ranks 3, but torchrun has started 4" in result.stderr


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_are_measured_and_their_network_is_written(tmp_path: Any) -> None:
    output, plot = tmp_path / "mine.toml", tmp_path / "mine.png"
    arguments = ["--ranks", "2", "--seconds", "6", "--json", "--output", str(output), "--plot", str(plot)]
    finished = subprocess.run(
        [sys.executable, "-m", "testbed", "calibrate", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=dict(os.environ),
    )

    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    calibration = Calibration.read(output)
    assert document["method"] == ["measured", "simulated"]
    assert calibration.classes.keys() == {"inside_node"}
    assert calibration.origin.num_rows == len(document["rows"])
    assert plot.stat().st_size > 10_000
