"""Results of validations: a network beside measured collectives, and a device beside measured steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.calibration import confidence
from testbed.calibration.judge.judging import Judged, Refusal
from testbed.output.table import counted, grouped, percent, seconds, spell_size
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, found_by, quiet

if TYPE_CHECKING:
    from testbed.calibration.judge.steps import ValidatedDevice

MODEL = (
    "the network's file as simulate reads it: what was measured (least of three lines), else what a real run "
    "would use, NCCL's own choice or programs on the links"
)
WORST = 10
COLUMNS = (
    *asked("case", head="case", of=lambda own: f"{own.family}, {spell_size(own.row.nbytes)}"),
    *found("bottleneck", head="bottleneck of the prediction"),
    *asked("system", "collective", of="row"),
    *asked("algorithm"),
    *asked("nbytes", of="row"),
    *asked("ranks", of=lambda own: own.row.num_ranks),
    *asked("nodes", of=lambda own: own.row.num_nodes),
    *found("predicted_seconds", head="predicted", spell=seconds, of=lambda own: own.predicted),
    *found("measured_seconds", head="measured", spell=seconds, of=lambda own: own.measured),
    *found("error", head="error", spell=confidence.signed),
    *found("low_seconds", of=lambda own: own.interval and own.interval[0]),
    *found("high_seconds", of=lambda own: own.interval and own.interval[1]),
    *found("held", head="interval", spell={True: "holds", False: "missed"}.__getitem__, none="–"),
    *found_by("model"),
    *found("seen"),
    *found("beyond", head="beyond", of=lambda own: own.beyond or None),
)
REFUSED = (*asked("system", "collective", "nbytes", of="row"), *found("reason"))
STEPS_MODEL = (
    "the roofline of a device file: each operation at the rate of its kind, type and shape; measured with "
    "freed memory kept by the process"
)
STEP_COLUMNS = (
    *asked("case", head="step of"),
    *asked("description"),
    *found("predicted_seconds", head="predicted", spell=seconds, of=lambda own: own.predicted),
    *found("measured_seconds", head="measured", spell=seconds, of=lambda own: own.measured),
    *found("spread", head="spread", spell=percent),
    *found("error", head="error", spell=confidence.signed),
    *found("default_seconds", head="memory by default", spell=seconds),
    *found("reference", head="product beside", spell="{:.2f}".format),
    *found("notices", of=lambda own: list(own.notices)),
)
STEPS_EXPLAINED = (
    "Measured: the median step, with freed memory kept by the process; spread: of its middle half. Memory by "
    "default: the median where the C library hands memory back, which no prediction has. Product beside: how "
    "many times as long as the file says a product of 1024³ took between the steps; what is above 1 was this "
    "machine, which others shared."
)


def table_result(judged: Sequence[Judged], refused: Sequence[Refusal], network: str, source: str) -> Result:
    """Return errors by family and size, the worst cases, and what was refused.

    Args:
        judged: rows beside what the network says of them.
        refused: rows of which it says nothing.
        network: its name.
        source: the file of the rows.
    """
    unseen = [row for row in judged if not row.seen]
    families = grouped(unseen, lambda row: row.family)
    return Result(
        question=f"How far is {network} from what {Path(source).name} measured?",
        answer=confidence.far_off(errors_of_large(unseen)),
        method=["closed form", "simulated"],
        model=MODEL,
        assumptions={"network": network},
        rows=Rows.of(COLUMNS, judged),
        tables={"refused": Rows.of(REFUSED, refused)},
        asked=("network", "table"),
        body={
            "network": network,
            "table": source,
            **figures(unseen),
            "seen": figures([row for row in judged if row.seen]),
            "families": [{"family": family, **_classes(own)} for family, own in families.items()],
        },
        parts=list(_parts(judged, refused)),
    )


def _parts(judged: Sequence[Judged], refused: Sequence[Refusal]) -> Iterator[Part]:
    unseen = [row for row in judged if not row.seen]
    families = grouped(judged, lambda row: f"{row.family}{' (seen)' if row.seen else ''}")
    together = {
        "all that no calibration has seen": unseen,
        "all that the calibration has seen": [row for row in judged if row.seen],
    }
    groups = {**families, **{name: own for name, own in together.items() if own}}
    heads = ("error in %: median (worst)", *confidence.CLASSES, "held", "model")
    yield Grid(heads, [(name, *error_cells(own)) for name, own in groups.items()])
    yield Text([f"Worst of {'those not seen' if unseen else 'all, which the calibration has seen'}"])
    yield Rows.of(COLUMNS, confidence.worst(unseen or judged, WORST)).grid(text_columns=2, gap=False)
    reasons = Counter(own.reason for own in refused)
    yield quiet(
        *(f"Refused, {counted(number, 'row')}: {reason}" for reason, number in reasons.items()), gap=False
    )
    yield quiet(f"Predicted by {MODEL}.")


def errors_of_large(rows: Iterable[Judged]) -> confidence.Errors | None:
    """Return the errors of rows from `SMALL` bytes on."""
    return confidence.Errors.of(row for row in rows if row.row.nbytes >= confidence.SMALL)


def figures(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of some rows: over sizes from 512 KiB, over smaller ones, by class of size."""
    every = confidence.Errors.of(rows)
    return {
        **confidence.figures_by_size(rows, lambda row: row.row.nbytes),
        "held": None if every is None else every.held,
        **_classes(rows),
    }


def _by_class(rows: Iterable[Judged]) -> dict[str, confidence.Errors | None]:
    return confidence.by_class(rows, lambda row: row.row.nbytes)


def _classes(rows: Iterable[Judged]) -> dict[str, Any]:
    """Return the errors of some rows by class of size, as JSON types."""
    return {"classes": {name: own and own.as_json() for name, own in _by_class(rows).items()}}


def error_cells(rows: Sequence[Judged]) -> list[str]:
    """Return the error in percent for each class of size, how many intervals held, and the models."""
    cells = [
        "–" if own is None else f"{100 * own.median:.1f} ({100 * abs(own.worst):.0f})"
        for own in _by_class(rows).values()
    ]
    held = [row.held for row in rows if row.held is not None]
    models = ", ".join(dict.fromkeys(row.model for row in rows))
    return [*cells, f"{sum(held)} of {len(held)}" if held else "–", models]


def device_result(validated: ValidatedDevice, predictions: Path) -> Result:
    """Return predicted beside measured steps; *predictions* is the file in which they stood before."""
    errors, rows = confidence.Errors.of(validated.rows), Rows.of(STEP_COLUMNS, validated.rows)
    return Result(
        question=f"How far are steps that were predicted on {validated.device} from those measured here?",
        answer=confidence.far_off(errors),
        method=["simulated", "measured"],
        model=STEPS_MODEL,
        assumptions={"device": validated.device},
        rows=rows,
        asked=("device", "description", "threads"),
        body={
            "device": validated.device,
            "description": validated.description,
            "threads": validated.threads,
            "predictions": {"file": str(predictions), "sha256": validated.digest},
            "median_error": errors and errors.median,
            "worst_error": errors and abs(errors.worst),
        },
        parts=[
            Text(title=f"{validated.device}: {validated.description}"),
            rows.grid(gap=False),
            Text([steps_summary(errors)], wrap=True, gap=False),
            quiet(
                STEPS_EXPLAINED,
                *dict.fromkeys(notice for row in validated.rows for notice in row.notices),
                gap=False,
            ),
            Text([f"Predicted beforehand: {predictions}, SHA-256 {validated.digest}"], gap=False),
        ],
    )


def steps_summary(errors: confidence.Errors | None) -> str:
    """Return how far the predictions are off, in a sentence."""
    if errors is None:
        return "No step was predicted."
    return f"Error: median {percent(errors.median)}, worst {percent(abs(errors.worst))}."
