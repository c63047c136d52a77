"""`testbed demo`: what it promises to check, it checks; the training itself is tested with the example."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import testbed.scripts.training
from ddp import Profile
from testbed.commands import demo
from testbed.errors import UsageError
from testbed.scripts.training import Trained, check_training, example_script
from tests.commands import called, reported

FILES = """
manifest.json prove.json train.json predict.json scaling.png
digits-profile.json trace-gloo.json trace-simulated.json
"""


def trained(
    name: str, folder: Path, weights: list[float], accuracy: float = 0.97, virtual: float | None = None
) -> Trained:
    folder.mkdir(parents=True, exist_ok=True)
    parameters = folder / "parameters.pt"
    torch.save({"weight": torch.tensor(weights, dtype=torch.float64)}, parameters)
    return Trained(name, "as told", 4, accuracy, 1.0, virtual, parameters)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace training by a tale of how it ended, and predict for few ranks only."""
    monkeypatch.setattr(demo, "SCALED_RANKS", [1, 8])
    monkeypatch.setattr(demo, "PROVED_RANKS", range(2, 5))

    def tell(processes: list[float], virtual: list[float], single: list[float]) -> None:
        def train_processes(
            name: str, how: str, script: Any, ranks: int, folder: Path, options: Any, *_: Any
        ):
            written = Path(options[-1])
            if ranks == 1:
                Profile.uniform(num_buckets=2, bucket_bytes=2**20, seconds_per_bucket=1e-3).save(written)
            else:
                written.write_text("{}")
            return trained(name, folder, processes if ranks > 1 else single)

        def train_virtual(
            name: str, how: str, script: Any, topology: Any, folder: Path, options: Any, *_: Any
        ):
            Path(options[-1]).write_text("{}")
            return trained(name, folder, virtual, virtual=0.5)

        monkeypatch.setattr(demo, "train_processes", train_processes)
        monkeypatch.setattr(demo, "train_virtual", train_virtual)

    return tell


def test_the_folder_holds_every_part_and_a_manifest_that_lists_it(
    told: Callable[..., None], tmp_path: Path
) -> None:
    told([1.0, 2.0], [1.0, 2.0], [1.0, 2.0 + 1e-12])
    out = tmp_path / "out"

    shown = called(f"demo --output {out}").stdout

    manifest = json.loads((out / "manifest.json").read_text())
    for found in ({path.name for path in out.iterdir()}, manifest["files"].keys()):
        assert found >= set(FILES.split())
    assert all((out / name).is_file() or name.startswith("train/") for name in manifest["files"])
    assert [check["holds"] for check in manifest["checks"]] == 6 * [True]
    assert {"schema", "command", "versions", "seed", "model", "topologies"} <= manifest.keys()
    positions = [shown.index(part) for part in ("1 Prove", "2 Train", "3 Predict", "4 Show")]
    assert positions == sorted(positions)


def test_with_json_stdout_is_one_document_with_the_parts(told: Callable[..., None], tmp_path: Path) -> None:
    told([1.0], [1.0], [1.0])

    document = reported(f"demo --output {tmp_path}")

    assert {"prove", "train", "predict", "checks"} <= document.keys()
    assert [row["holds"] for row in document["rows"]] == 6 * [True]
    assert document["answer"] == "All 6 checks hold."
    assert document["assumptions"]["network"] == list(demo.NETWORKS)


@pytest.mark.parametrize(
    ("virtual", "single", "message"),
    [
        ([1.0 + 2**-52], [1.0], "bit-identical parameters: 1 of 1 differ"),
        ([1.0], [1.0 + 1e-9], "agrees with them to 1e-10: largest difference 1.0e-09"),
    ],
)
def test_results_that_do_not_agree_end_with_1(
    told: Callable[..., None], tmp_path: Path, virtual: list[float], single: list[float], message: str
) -> None:
    told([1.0], virtual, single)

    result = called(f"demo --output {tmp_path}", code=1)

    assert message in result.stderr
    assert "FAILED" in result.stdout


def test_a_sign_of_zero_is_a_difference_in_bits(tmp_path: Path) -> None:
    runs = [trained(name, tmp_path / name, [zero]) for name, zero in (("a", 0.0), ("b", -0.0), ("c", 0.0))]

    identical, close, accurate = check_training(*runs)

    assert not identical.holds
    assert close.holds
    assert accurate.holds


def test_too_little_learnt_is_a_failed_check(tmp_path: Path) -> None:
    runs = [trained(name, tmp_path / name, [1.0], accuracy=0.95) for name in "abc"]

    assert not check_training(*runs)[2].holds


def test_without_the_example_the_demo_says_where_it_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(testbed.scripts.training, "__file__", str(tmp_path / "testbed" / "training.py"))
    monkeypatch.setattr(testbed.scripts.training.sysconfig, "get_path", lambda name: str(tmp_path / "data"))

    with pytest.raises(UsageError, match="run it from a source checkout"):
        example_script()


def test_a_disk_that_is_nearly_full_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4096))

    result = called(f"demo --output {tmp_path / 'out'}", code=2)

    assert result.stderr.endswith("expected 16777216 B to be free there, got 4096\n")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
