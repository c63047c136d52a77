"""Predictions beside published collectives: on a terminal, as JSON, and as a section of a document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console

from testbed.output.folder import document
from testbed.output.table import counted, seconds, spell_size, table
from testbed.truth.document import Section
from testbed.truth.published.judging import SMALL, Errors, Judged, Refusal, by_class
from testbed.truth.published.one_node import carried_to_a_later_generation, median_error
from testbed.truth.published.presets import PresetJudged
from testbed.truth.published.size_class import CLASSES

MODEL = (
    "the best that the network's file has: what was measured (least of three lines), else NCCL's own model, "
    "else a ring on its links"
)
WORST = 10
WIDTH = 118

_OPENING = (
    "Written by `testbed validate`. The measured tables of the presets are fitted to the calibrating part "
    "of the collectives in `testbed/truth/published/data/` (`benchmarks/calibrate_presets.py`); which "
    "part that is was settled in `split.toml`, before any of these fits. *Same*: rows of a system that "
    "calibrated, of sizes that were left out. *Other*: systems of which nothing was fitted to. Error of "
    "the time in percent: median (worst), by size; *held*: intervals for nine of ten measurements that "
    "hold theirs."
)
_FAILS = (
    "Where and why it fails: `eks` is an earlier NCCL (2.18, the scaling table is of 2.28), `abci` a very "
    "early one (2.8); `stas` was timed by a Python script, whose own time is in every small call, and "
    "`superbench` by one process for all GPUs; `simumax` has a floor of 45 us that no other table of "
    "H100s shows; `oci_2251` and `oke_2143` stay on rings on two nodes, where the system that calibrates "
    "takes a tree. A table knows no version and no setting: where they differ, calibrate."
)
_NODE = (
    "NCCL inside a node, the default (`testbed simulate nccl --network NAME`) beside the rows that its table "
    "is of: median error in percent below 1 MiB, and from there on. *Left out*: every second size, predicted "
    "from the others; these are sixteen times apart, in the files they are four times apart. *NCCL's model*: "
    "the default if the file held no measurements. Not measured, "
    "but carried over from dgx-h100 (`testbed/truth/published/carried.py`), are all of dgx-h200 and, but for "
    "what is here, the collectives of aws-p6-b200 and gb200-nvl72; the same rule takes dgx-a100 to dgx-h100 "
    "within {small} below 1 MiB and {large} from there on, but was chosen knowing both."
)
_AGREE = (
    "Against themselves: no preset contradicts itself. NCCL's model and the measured tables answer at "
    "every size, never below what the links allow, and large rings on the links take what was measured on "
    "more than two nodes."
)


def print_table(console: Console, judged: Sequence[Judged], refused: Sequence[Refusal]) -> None:
    """Print errors by family and size, the worst cases, and what was refused."""
    unseen = [row for row in judged if not row.seen]
    families: dict[str, list[Judged]] = defaultdict(list)
    for row in judged:
        families[f"{row.family}{' (seen)' if row.seen else ''}"].append(row)
    rows = [(family, *_cells(own)) for family, own in families.items()]
    if unseen:
        rows.append(("all that no calibration has seen", *_cells(unseen)))
    if seen := [row for row in judged if row.seen]:
        rows.append(("all that the calibration has seen", *_cells(seen)))
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
                        _signed(row.error),
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


def print_presets(console: Console, found: Sequence[PresetJudged]) -> None:
    """Print each preset's errors, and in what it contradicts itself."""
    rows = [
        (own.name, what, *_cells(judged))
        for own in found
        for what, judged in (("same system, other sizes", own.same), ("other systems", own.other))
        if judged
    ]
    for what, judged in (*_together(found), *_by_other_models(found)):
        rows.append(("all GPUs", what, *_cells(judged)))
    heads = ("preset", "error in %: median (worst)", *CLASSES, "held", "model")
    console.print(table(heads, rows, text_columns=2))
    console.print(
        "Held: intervals for nine of ten measurements that hold theirs. Rows that no calibration has seen.",
        style="dim",
        markup=False,
    )
    alone = [own.name for own in found if not own.same and not own.other]
    console.print(f"Nothing measured ships for {', '.join(alone)}.", style="dim", markup=False)
    for own in found:
        for text in own.contradictions:
            console.print(f"{own.name} contradicts itself: {text}", markup=False, soft_wrap=True)
    if not any(own.contradictions for own in found):
        console.print("No preset contradicts itself.", markup=False)


def presets_document(found: Sequence[PresetJudged]) -> dict[str, Any]:
    """Return what `print_presets` prints, as JSON types."""
    return {
        **{
            key: figures(judged)
            for key, (_, judged) in zip(("same_systems", "other_systems"), _together(found), strict=True)
        },
        "other_systems_by_model": {
            rows[0].model: figures(rows) for _, rows in _by_other_models(found) if rows
        },
        "presets": [
            {
                "preset": own.name,
                "same_system": figures(own.same),
                "other_systems": figures(own.other),
                "inside_a_node": [node.as_json() for node in own.node],
                "contradictions": list(own.contradictions),
                "rows": [row.as_json() for row in (*own.same, *own.other)],
                "refused": [row.as_json() for row in own.refused],
            }
            for own in found
        ],
    }


def presets_section(found: Sequence[PresetJudged]) -> Section:
    """Return the section of the published collectives."""
    rows = [
        f"| {own.name} | {what} | {' | '.join(_cells(judged)[:-1])} |"
        for own in found
        for what, judged in (("same", own.same), ("other", own.other))
        if judged
    ]
    for what, judged in (*_together(found), *_by_other_models(found)):
        rows.append(f"| all GPUs | {what} | {' | '.join(_cells(judged)[:-1])} |")
    worst = sorted((row for own in found for row in own.other), key=lambda row: -abs(row.error))[:WORST]
    cases = [
        f"| {row.family}, {spell_size(row.row.nbytes)} | {seconds(row.predicted)} | "
        f"{seconds(row.row.seconds)} | {_signed(row.error)} | {row.bottleneck} |"
        for row in worst
    ]
    contradictions = [f"* {own.name}: {text}" for own in found for text in own.contradictions]
    body = [
        *wrap(_OPENING, WIDTH),
        "",
        f"| preset | systems | {' | '.join(CLASSES)} | held |",
        f"|---|---|{'---|' * (len(CLASSES) + 1)}",
        *rows,
        "",
        "The worst of other systems:",
        "",
        "| case | predicted | measured | error | most of the prediction is |",
        "|---|---|---|---|---|",
        *cases,
        "",
        *wrap(_FAILS, WIDTH),
        "",
        *_node_lines(found),
        "",
        *(("Presets contradict themselves:", "", *contradictions) if contradictions else wrap(_AGREE, WIDTH)),
    ]
    return Section("published", "Published collectives", "\n".join(body))


def _node_lines(found: Sequence[PresetJudged]) -> list[str]:
    """Return the table of the library's collectives inside a node."""
    carried = [(own.nbytes, own.error) for own in carried_to_a_later_generation()]
    small, large = (_percent(median_error(carried, large=large)) for large in (False, True))
    opening = _NODE.format(small=f"{small} %", large=f"{large} %")
    lines = [
        *wrap(opening, WIDTH),
        "",
        "| preset | collective | ranks | below 1 MiB | from 1 MiB | left out: below | from "
        "| NCCL's model: below | from | held |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for own in found:
        for node in own.node:
            cells = [
                _percent(median_error(errors, large=large))
                for errors in node.errors().values()
                for large in (False, True)
            ]
            ranks = ", ".join(str(count) for count in sorted({row.row.num_ranks for row in node.rows}))
            held = f"{sum(row.held for row in node.rows)} of {len(node.rows)}"
            lines.append(f"| {own.name} | {node.collective} | {ranks} | {' | '.join(cells)} | {held} |")
    return lines


def _percent(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:.1f}"


def _together(found: Sequence[PresetJudged]) -> list[tuple[str, list[Judged]]]:
    return [
        ("same system, other sizes", [row for own in found if own.gpus for row in own.same]),
        ("other systems", [row for own in found if own.gpus for row in own.other]),
    ]


def _by_other_models(found: Sequence[PresetJudged]) -> list[tuple[str, list[Judged]]]:
    """Return the rows of other systems by the models that the measured tables stand before."""
    return [
        (f"other systems, by {words}", [row for own in found if own.gpus for row in own.alternatives[model]])
        for model, words in (("nccl", "NCCL's model"), ("links", "links"))
    ]


def _cells(rows: Sequence[Judged]) -> list[str]:
    """Return the error in percent for each class of size, how many intervals held, and the models."""
    cells = [
        "–" if own is None else f"{100 * own.median:.1f} ({100 * own.worst:.0f})"
        for own in by_class(rows).values()
    ]
    held = [row.held for row in rows if row.held is not None]
    models = ", ".join(dict.fromkeys(row.model for row in rows))
    return [*cells, f"{sum(held)} of {len(held)}" if held else "–", models]


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %"


def _reasons(refused: Sequence[Refusal]) -> dict[str, int]:
    reasons: dict[str, int] = defaultdict(int)
    for own in refused:
        reasons[own.reason] += 1
    return reasons
