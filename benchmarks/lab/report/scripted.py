"""Published trainings of one node, run from scripts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.lab.published.scripted import families, summary
from testbed.calibration.confidence import Errors, far_off, signed, worst
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from benchmarks.lab.published.scripted import ScriptedPrediction

MODEL = (
    "a plain script on virtual ranks without data: kernels that CUDA would launch by the constants of the "
    "device file, collectives of the script on the links of the node, streams and a host that runs ahead"
)
CASES = ("model", "device", "precision", "setting", "role", "predicted", "measured", "error")
WORST = 8
COLUMNS = (
    *asked("set", "model", "device", "precision", "setting", "ranks", "script", "arguments", "passes"),
    *asked("samples", "role"),
    *found("measured", "predicted", "step_seconds", "exposed_seconds", "error"),
)
SUMMARIES = (*asked("family"), *found("count", "median", "ninth", "worst"))


def scripted_result(trainings: Sequence[ScriptedPrediction]) -> Result:
    """Return the errors by family, and the worst rows."""
    title = "Published trainings of one node, from scripts"
    return Result(
        question="How far are published trainings of one node from what their scripts are predicted to take?",
        answer=far_off(Errors.of(trainings)),
        method="simulated",
        model=MODEL,
        rows=Rows(COLUMNS, [one.as_json() for one in trainings]),
        tables={"summaries": Rows(SUMMARIES, [summary(*item) for item in families(trainings).items()])},
        parts=[
            _summaries(trainings, title),
            _cases(worst(trainings, WORST), "The worst"),
            quiet(f"Simulated: {MODEL}."),
        ],
    )


def scripted_section(trainings: Sequence[ScriptedPrediction], sample: int, seed: int) -> Sequence[Part]:
    """Return the errors for a document, of so many rows of each script and device, drawn by *seed*."""
    foretold = json.dumps([(one.row.set, one.row.model, one.row.setting, one.predicted) for one in trainings])
    digest = hashlib.sha256(foretold.encode()).hexdigest()[:16]
    nvidia = [one for one in trainings if one.row.script != "mpt.py"]
    return [
        Text(
            [
                f"{len(trainings)} rows: {sample} of each script and device, or all, drawn by seed {seed}. "
                f"SHA-256 of what was predicted of them: `{digest}`."
            ]
        ),
        _summaries(trainings),
        _cases(worst(trainings, WORST), "The worst"),
        _cases(nvidia, "NVIDIA's rows"),
    ]


def _summaries(trainings: Sequence[ScriptedPrediction], title: str = "") -> Grid:
    rows = []
    for family, own in families(trainings).items():
        one = summary(family, own)
        shares = f"{100 * one['median']:.1f} %", f"{100 * one['ninth']:.1f} %", signed(one["worst"])
        rows.append((family, str(one["count"]), *shares))
    return Grid(("trainings", "rows", "median", "nine in ten", "worst"), rows, title=title)


def _cases(rows: Sequence[ScriptedPrediction], title: str) -> Grid:
    return Grid(CASES, [_case(one) for one in rows], text_columns=5, title=title)


def _case(one: ScriptedPrediction) -> tuple[str, ...]:
    own = one.row
    figures = f"{one.predicted:,.0f}", f"{one.measured:,.0f}", signed(one.error)
    return own.model, own.device, own.precision, own.setting, own.role, *figures
