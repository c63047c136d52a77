"""Peak memory of Llama 3.1 8B on 8 GPUs, as torchtitan has measured it, without data.

What 128 need, `benchmarks/llama_memory.py` tells under ``testbed run --fake --ranks 128``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives.virtual import Roofline, run

SCRIPT = Path(__file__).parents[5] / "benchmarks" / "llama_memory.py"


@pytest.mark.slow
def test_the_peak_of_llama_is_within_five_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

    report = run(SCRIPT, 8, "dgx-h100", compute=Roofline("h200"), fake=True, argv=["--steps", "2"]).report

    assert report.memory is not None
    assert report.memory.reserved_bytes / 2**30 == pytest.approx(82.4, rel=0.05)
