"""`testbed calibrate` of a network: what it refuses, what it measures, what it writes."""

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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ranks", "1"], "one rank sends nothing"),
        (["--seconds", "1"], "--seconds 1: expected 5 at least"),
        (["--select", "a*"], "--select is of a table"),
        (["--plot", "fit.doc"], "fit.doc"),
        (["--output", "/nowhere/mine.toml"], "no folder /nowhere"),
        (["--from", "rows.csv", "--plot", "fit.png"], "--plot is of a network that is measured"),
        (["--device", "--seconds", "30"], "--seconds is of a network that is measured"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["calibrate", *arguments])

    assert result.exit_code == 2
    assert says in result.stderr


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
