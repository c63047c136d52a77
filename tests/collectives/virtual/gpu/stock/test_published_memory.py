"""Peak memory of Llama 3.1 8B, as torchtitan has measured it, without data."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.virtual import Roofline, run

SCRIPT = Path(__file__).parents[5] / "benchmarks" / "llama_memory.py"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "published_gib"), [(8, 82.4), (128, 67.0)])
def test_the_peak_of_llama_is_within_five_percent(
    ranks: int, published_gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

    report = run(SCRIPT, ranks, "dgx-h100", compute=Roofline("h200"), fake=True, argv=["--steps", "2"]).report

    assert report.memory is not None
    assert report.memory.reserved_bytes / 2**30 == pytest.approx(published_gib, rel=0.05)
