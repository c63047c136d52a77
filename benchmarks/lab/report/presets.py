"""Networks that ship beside published collectives: on a terminal, as JSON and as a section of a document."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from rich.console import Console

from benchmarks.lab.document import Section
from benchmarks.lab.published.one_node import carried_to_a_later_generation, median_error
from benchmarks.lab.published.presets import PresetJudged
from testbed.output.table import seconds, spell_size, table
from testbed.report.published import WORST, error_cells, figures, signed
from testbed.truth.published.judging import Judged
from testbed.truth.published.size_class import CLASSES

WIDTH = 118

_OPENING = (
    "Written by `python -m benchmarks.lab.truth`. The measured tables of the presets are fitted to the "
    "calibrating part of the collectives in `benchmarks/lab/published/data/` "
    "(`benchmarks/calibrate_presets.py`); which part that is was settled in `split.toml`, before any "
    "of these fits. *Same*: rows of a system that "
    "calibrated, of sizes that were left out. *Other*: held-out systems. Error of "
    "the time in percent: median (worst), by size; *held*: coverage, the rows "
    "inside their 90 % interval."
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
    "but carried over from dgx-h100 (`benchmarks/lab/published/carried.py`), are all of dgx-h200 and, but "
    "for what is here, the collectives of aws-p6-b200 and gb200-nvl72; the same rule takes dgx-a100 to "
    "dgx-h100 within {small} below 1 MiB and {large} from there on, but was chosen knowing both."
)
_AGREE = (
    "Against themselves: no preset contradicts itself. NCCL's model and the measured tables answer at "
    "every size, never below what the links allow, and large rings on the links take what was measured on "
    "more than two nodes."
)


def print_presets(console: Console, found: Sequence[PresetJudged]) -> None:
    """Print each preset's errors, and in what it contradicts itself."""
    rows = [
        (own.name, what, *error_cells(judged))
        for own in found
        for what, judged in (("same system, other sizes", own.same), ("other systems", own.other))
        if judged
    ]
    for what, judged in (*_together(found), *_by_other_models(found)):
        rows.append(("all GPUs", what, *error_cells(judged)))
    heads = ("preset", "error in %: median (worst)", *CLASSES, "held", "model")
    console.print(table(heads, rows, text_columns=2))
    console.print(
        "Held: coverage, the rows inside their 90 % interval. Rows that no calibration has seen.",
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
        f"| {own.name} | {what} | {' | '.join(error_cells(judged)[:-1])} |"
        for own in found
        for what, judged in (("same", own.same), ("other", own.other))
        if judged
    ]
    for what, judged in (*_together(found), *_by_other_models(found)):
        rows.append(f"| all GPUs | {what} | {' | '.join(error_cells(judged)[:-1])} |")
    worst = sorted((row for own in found for row in own.other), key=lambda row: -abs(row.error))[:WORST]
    cases = [
        f"| {row.family}, {spell_size(row.row.nbytes)} | {seconds(row.predicted)} | "
        f"{seconds(row.row.seconds)} | {signed(row.error)} | {row.bottleneck} |"
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
