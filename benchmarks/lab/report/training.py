"""Lost efficiency of published trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.lab.published.training import families, summary
from testbed.calibration.confidence import Errors, far_off, worst
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from benchmarks.lab.published.training import LostEfficiency

MODEL = (
    "a step by simulate_step with inefficiencies=all over the bundled profile of the model, whose times are "
    "scaled to the published throughput of one GPU; links of vendors' rates; NCCL's own expectation of each "
    "bucket"
)
HEADS = ("trainings", "rows", "measured", "ideal", "expected", "error", "ideal error", "worst", "within 3")
CASES = ("set", "model", "variant", "GPUs", "measured", "expected", "error")
WORST = 8
COLUMNS = (
    *asked("set", "model", "variant", "precision", "nodes", "gpus", "passes", "role"),
    *found("alone_seconds", "efficiency", "measured", "ideal", "expected", "inefficiencies", "error"),
)
SUMMARIES = (
    *asked("family"),
    *found("count", "measured", "ideal", "expected", "median_error", "ideal_error", "worst_error", "within"),
)


def trainings_result(trainings: Sequence[LostEfficiency]) -> Result:
    """Return the errors by family, and the worst cases."""
    title = "Lost efficiency of published trainings, in % and points"
    return Result(
        question="How far is the efficiency that published trainings lost from what is expected?",
        answer=far_off(Errors.of(trainings), "of efficiency"),
        method=["simulated", "closed form"],
        model=MODEL,
        rows=Rows(COLUMNS, [one.as_json() for one in trainings]),
        tables={"summaries": Rows(SUMMARIES, [summary(*item) for item in families(trainings).items()])},
        parts=[
            _summaries(trainings, title),
            _worst(trainings, "Worst of those that judge"),
            quiet(f"Simulated and closed form: {MODEL}."),
        ],
    )


def trainings_section(trainings: Sequence[LostEfficiency], rate: float) -> Sequence[Part]:
    """Return the errors for a document; *rate* is what a ring reaches, in bytes/s, where nobody states it."""
    return [
        Text([f"A ring between cards without NVLink: {rate / 1e9:.2f} GB/s, of the rows that calibrate."]),
        _summaries(trainings),
        _worst(trainings, "The worst of those that judge"),
    ]


def _summaries(trainings: Sequence[LostEfficiency], title: str = "") -> Grid:
    """Return the summaries but for those of single sets, which are in the JSON document."""
    rows = []
    for family, own in families(trainings).items():
        if family.startswith("ddp_"):
            continue
        one = summary(family, own)
        shares = (f"{100 * one[name]:.1f} %" for name in ("measured", "ideal", "expected"))
        points = f"{100 * one['median_error']:.1f}", f"{100 * one['ideal_error']:.1f}"
        rows.append(
            (
                family,
                str(one["count"]),
                *shares,
                *points,
                f"{100 * one['worst_error']:+.1f}",
                f"{100 * one['within']:.0f} %",
            )
        )
    return Grid(HEADS, rows, title=title)


def _worst(trainings: Sequence[LostEfficiency], title: str) -> Grid:
    judged = [one for one in trainings if one.training.role == "judge"]
    return Grid(CASES, [_case(one) for one in worst(judged, WORST)], text_columns=3, title=title)


def _case(one: LostEfficiency) -> tuple[str, ...]:
    own = one.training
    figures = f"{100 * one.measured:.1f} %", f"{100 * one.predicted:.1f} %", f"{100 * one.error:+.1f}"
    return own.set, own.model, f"{own.variant} {own.precision}".strip(), str(own.gpus), *figures
