"""Predictions of a network beside a table of measured collectives, on a terminal and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from testbed.output.folder import document
from testbed.output.table import counted, seconds, spell_size, table
from testbed.truth.published.judging import SMALL, Errors, Judged, Refusal, by_class
from testbed.truth.published.size_class import CLASSES

MODEL = (
    "the best that the network's file has: what was measured (least of three lines), else NCCL's own model, "
    "else a ring on its links"
)
WORST = 10


def print_table(console: Console, judged: Sequence[Judged], refused: Sequence[Refusal]) -> None:
    """Print errors by family and size, the worst cases, and what was refused."""
    unseen = [row for row in judged if not row.seen]
    families: dict[str, list[Judged]] = defaultdict(list)
    for row in judged:
        families[f"{row.family}{' (seen)' if row.seen else ''}"].append(row)
    rows = [(family, *error_cells(own)) for family, own in families.items()]
    if unseen:
        rows.append(("all that no calibration has seen", *error_cells(unseen)))
    if seen := [row for row in judged if row.seen]:
        rows.append(("all that the calibration has seen", *error_cells(seen)))
    console.print(table(("error in %: median (worst)", *CLASSES, "held", "model"), rows))

    worst = sorted(unseen or judged, key=lambda row: -abs(row.error))[:WORST]
    if worst:
        console.print(f"\nWorst of {'those not seen' if unseen else 'all, which the calibration has seen'}")
        heads = ("case", "bottleneck of the prediction", "predicted", "measured", "error", "interval")
        console.print(
            table(
                heads,
                [
                    (
                        f"{row.family}, {spell_size(row.row.nbytes)}",
                        f"{row.bottleneck} {row.beyond}".strip(),
                        seconds(row.predicted),
                        seconds(row.row.seconds),
                        signed(row.error),
                        {None: "–", True: "holds", False: "missed"}[row.held],
                    )
                    for row in worst
                ],
                text_columns=2,
            )
        )
    for reason, number in _reasons(refused).items():
        console.print(f"Refused, {counted(number, 'row')}: {reason}", markup=False, style="dim")
    console.print(f"\nPredicted by {MODEL}.", style="dim", markup=False)


def table_document(
    judged: Sequence[Judged], refused: Sequence[Refusal], network: str, source: str
) -> dict[str, Any]:
    """Return what `print_table` prints, as JSON types."""
    unseen = [row for row in judged if not row.seen]
    families: dict[str, list[Judged]] = defaultdict(list)
    for row in unseen:
        families[row.family].append(row)
    return document(
        method=["closed form", "simulated"],
        model=MODEL,
        network=network,
        table=source,
        **figures(unseen),
        seen=figures([row for row in judged if row.seen]),
        families=[{"family": family, **_classes(own)} for family, own in families.items()],
        rows=[row.as_json() for row in judged],
        refused=[row.as_json() for row in refused],
    )


def figures(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of some rows: over sizes from 512 KiB, over smaller ones, by class of size."""
    large = Errors.of([row for row in rows if row.row.nbytes >= SMALL])
    small = Errors.of([row for row in rows if row.row.nbytes < SMALL])
    held = [row.held for row in rows if row.held is not None]
    return {
        "num_rows": len(rows),
        "median_error": None if large is None else large.median,
        "worst_error": None if large is None else large.worst,
        "small_median_error": None if small is None else small.median,
        "held": sum(held) / len(held) if held else None,
        **_classes(rows),
    }


def _classes(rows: Iterable[Judged]) -> dict[str, Any]:
    """Return the errors of some rows by class of size, as JSON types."""
    return {
        "classes": {
            name: None
            if own is None
            else {
                "num_rows": own.num_rows,
                "median_error": own.median,
                "worst_error": own.worst,
                "bias": own.bias,
                "held": own.held,
            }
            for name, own in by_class(rows).items()
        }
    }


def error_cells(rows: Sequence[Judged]) -> list[str]:
    """Return the error in percent for each class of size, how many intervals held, and the models."""
    cells = [
        "–" if own is None else f"{100 * own.median:.1f} ({100 * own.worst:.0f})"
        for own in by_class(rows).values()
    ]
    held = [row.held for row in rows if row.held is not None]
    models = ", ".join(dict.fromkeys(row.model for row in rows))
    return [*cells, f"{sum(held)} of {len(held)}" if held else "–", models]


def signed(error: float) -> str:
    """Return *error* in percent, with its sign."""
    return f"{100 * error:+.1f} %"


def _reasons(refused: Sequence[Refusal]) -> dict[str, int]:
    reasons: dict[str, int] = defaultdict(int)
    for own in refused:
        reasons[own.reason] += 1
    return reasons
