"""`testbed tune`: what it prints can be pasted, and bad input ends early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ddp.tuning.search
from ddp import Profile
from ddp.reduction.bucketing import MIB
from ddp.tuning.trials import StepOptions
from testbed.cli import app


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Seven gradients of 4 MiB, each 2 ms after the one before."""
    path = tmp_path / "small.json"
    Profile.uniform(num_buckets=7, bucket_bytes=4 * MIB, seconds_per_bucket=2e-3).save(path)
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["tune", "--ranks", "16", "--network", "ethernet-10g", *arguments])


@pytest.mark.costly
def test_the_document_has_the_default_the_best_and_every_step_simulated(small: Path) -> None:
    result = run(
        "--profile", str(small), "--algorithm", "ring,tree", "--strategy", "all", "--ideal", "--json"
    )

    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    times = [row["seconds"] for row in found["rows"]]
    assert found["method"] == "simulated"
    assert found["complete"]
    assert found["best"]["seconds"] == min(times)
    assert found["best"] in found["rows"]
    assert found["default"]["bucket_cap_mb"] is None
    assert found["default"]["gain"] == 0
    assert found["torch"]["algorithm"] == "ring"
    assert found["torch"]["strategy"] == "wait_free"
    assert found["topologies"].keys() == {"ethernet-10g x 16"}


def test_names_with_several_parameters_stay_whole(small: Path) -> None:
    result = run(
        "--profile",
        str(small),
        "--strategy",
        "wait_free,priority:partition_mb=4,credits=2",
        "--ideal",
        "--json",
    )

    assert result.exit_code == 0, result.stderr
    tried = {row["strategy"] for row in json.loads(result.stdout)["rows"]}
    assert len(tried) == 2
    assert any("credits=2" in name for name in tried)


def test_the_table_marks_the_default_and_ends_with_lines_to_paste(small: Path, tmp_path: Path) -> None:
    plot = tmp_path / "caps.svg"

    result = run("--profile", str(small), "--ideal", "--plot", str(plot))

    assert result.exit_code == 0, result.stderr
    assert "torch's default" in result.stdout
    assert "default 25, first 1" in result.stdout
    assert "Searched: wait_free with auto: one cap: all" in result.stdout
    assert "torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb" in result.stdout
    assert 'ddp.DistributedDataParallel(module, algorithm="direct", strategy="wait_free"' in result.stdout
    assert "Simulated: weak scaling" in result.stdout
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_an_interrupted_search_shows_the_best_so_far_and_says_so(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: ddp.tuning.search.Search) -> None:
        self._try(StepOptions("auto", "wait_free"))
        raise KeyboardInterrupt

    monkeypatch.setattr(ddp.tuning.search.Search, "run", interrupted)

    result = run("--profile", str(small))

    assert result.exit_code == 0, result.stderr
    assert "Interrupted: the best so far." in result.stdout
    assert "torch's default" in result.stdout


def test_what_software_takes_counts_in_the_search_and_in_the_report(small: Path) -> None:
    arguments = ["tune", "--profile", str(small), "--network", "switch-100g", "--ranks", "4"]
    counting = ["--overhead", "200us", "--transport-model", "nccl"]

    plain = CliRunner().invoke(app, [*arguments, "--json"])
    counted = CliRunner().invoke(app, [*arguments, *counting, "--json"])

    assert plain.exit_code == counted.exit_code == 0, plain.stderr + counted.stderr
    before, after = json.loads(plain.stdout), json.loads(counted.stdout)
    assert after["default"]["seconds"] > before["default"]["seconds"]
    assert (before["transport_model"], after["transport_model"]) == ("gloo", "nccl")
    assert "200us of overhead for each message on either side" in after["model"]


def test_what_the_vendor_runs_is_tuned_where_it_is_known(small: Path) -> None:
    arguments = ["--profile", str(small), "--algorithm", "native"]

    gloo = run(*arguments, "--transport-model", "gloo", "--json")
    nccl = run(*arguments, "--network", "dgx-h100", "--model", "nccl", "--json")

    assert gloo.exit_code == nccl.exit_code == 0, gloo.stderr + nccl.stderr
    for found in map(json.loads, (gloo.stdout, nccl.stdout)):
        assert found["best"]["algorithm"] == "native"
        assert found["best"]["seconds"] <= found["default"]["seconds"]
