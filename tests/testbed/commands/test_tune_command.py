"""`testbed tune`: what it prints can be pasted, and bad input ends early."""

from pathlib import Path

import pytest

import ddp.tuning.search
from ddp import Profile
from ddp.reduction.bucketing import MIB
from ddp.tuning.trials import StepOptions
from tests.commands import called, reported

TUNE = "tune --profile small.json --ranks 16 --network ethernet-10g"
DEFAULT = {"bucket_cap_mb": None, "gain": 0}


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Seven gradients of 4 MiB, each 2 ms after the one before, in a file of the current folder."""
    monkeypatch.chdir(tmp_path)
    Profile.uniform(num_buckets=7, bucket_bytes=4 * MIB, seconds_per_bucket=2e-3).save(Path("small.json"))


@pytest.mark.costly
def test_the_document_has_the_default_the_best_and_every_step_simulated():
    found = reported(f"{TUNE} --algorithm ring,tree --strategy all --ideal")

    assert found["complete"]
    assert found["model"].startswith("weak scaling")
    assert found["best"]["seconds"] == min(row["seconds"] for row in found["rows"])
    assert found["best"] in found["rows"]
    assert DEFAULT.items() <= found["default"].items()
    assert (found["torch"]["algorithm"], found["torch"]["strategy"]) == ("ring", "wait_free")
    assert found["topologies"].keys() == {"ethernet-10g x 16"}


def test_the_table_marks_the_default_and_ends_with_lines_to_paste():
    shown = called(f"{TUNE} --ideal --plot caps.svg").stdout

    assert "torch's default" in shown
    assert "default 25, first 1" in shown
    assert "torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb" in shown
    assert 'ddp.DistributedDataParallel(module, algorithm="direct", strategy="wait_free"' in shown
    assert Path("caps.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_an_interrupted_search_shows_the_best_so_far_and_says_so(monkeypatch):
    def interrupted(self):
        self._try(StepOptions("auto", "wait_free"))
        raise KeyboardInterrupt

    monkeypatch.setattr(ddp.tuning.search.Search, "run", interrupted)

    shown = called(TUNE, code=130).stdout

    assert "Interrupted: the best so far." in shown
    assert "torch's default" in shown
