"""`testbed tune`: what it prints can be pasted, and bad input ends early."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddp.tuning.search
from ddp import Profile
from ddp.reduction.bucketing import MIB
from ddp.tuning.trials import StepOptions
from tests.commands import called, reported, rows_of

TUNE = "tune --profile small.json --ranks 16 --network ethernet-10g"
DEFAULT = {"bucket_cap_mb": None, "gain": 0}


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven gradients of 4 MiB, each 2 ms after the one before, in a file of the current folder."""
    monkeypatch.chdir(tmp_path)
    Profile.uniform(num_buckets=7, bucket_bytes=4 * MIB, seconds_per_bucket=2e-3).save(Path("small.json"))


@pytest.mark.costly
def test_the_document_has_the_default_the_best_and_every_step_simulated() -> None:
    found = reported(f"{TUNE} --algorithm ring,tree --strategy all --ideal")

    assert found["complete"]
    assert found["model"].startswith("weak scaling")
    assert found["best"]["seconds"] == min(row["seconds"] for row in found["rows"])
    assert found["best"] in found["rows"]
    assert DEFAULT.items() <= found["default"].items()
    assert (found["torch"]["algorithm"], found["torch"]["strategy"]) == ("ring", "wait_free")
    assert found["topologies"].keys() == {"ethernet-10g x 16"}


def test_names_with_several_parameters_stay_whole() -> None:
    rows = rows_of(f"{TUNE} --strategy wait_free,priority:partition_mb=4,credits=2 --ideal")

    tried = {row["strategy"] for row in rows}
    assert len(tried) == 2
    assert any("credits=2" in name for name in tried)


def test_the_table_marks_the_default_and_ends_with_lines_to_paste() -> None:
    shown = called(f"{TUNE} --ideal --plot caps.svg").stdout

    assert "torch's default" in shown
    assert "default 25, first 1" in shown
    assert "torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb" in shown
    assert 'ddp.DistributedDataParallel(module, algorithm="direct", strategy="wait_free"' in shown
    assert Path("caps.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_an_interrupted_search_shows_the_best_so_far_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: ddp.tuning.search.Search) -> None:
        self._try(StepOptions("auto", "wait_free"))
        raise KeyboardInterrupt

    monkeypatch.setattr(ddp.tuning.search.Search, "run", interrupted)

    shown = called(TUNE, code=130).stdout

    assert "Interrupted: the best so far." in shown
    assert "torch's default" in shown


def test_what_software_takes_counts_in_the_search_and_in_the_report() -> None:
    before, after = (
        reported(f"tune --profile small.json --network switch-100g --ranks 4 {counted}")
        for counted in ("", "--overhead 200us --transport-model nccl")
    )

    assert after["default"]["seconds"] > before["default"]["seconds"]
    assert (before["transport_model"], after["transport_model"]) == ("gloo", "nccl")
    assert "200us of overhead for each message on either side" in after["model"]


@pytest.mark.parametrize(
    "known", ["--network ethernet-10g --transport-model gloo", "--network dgx-h100 --model nccl"]
)
def test_what_the_vendor_runs_is_tuned_where_it_is_known(known: str) -> None:
    found = reported(f"tune --profile small.json --ranks 16 --algorithm native {known}")

    assert found["best"]["algorithm"] == "native"
    assert found["best"]["seconds"] <= found["default"]["seconds"]
