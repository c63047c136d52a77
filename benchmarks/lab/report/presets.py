"""Networks that ship beside published collectives, and beside themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.lab.published.one_node import carried_to_a_later_generation, median_error
from benchmarks.lab.published.presets import PresetJudged
from testbed.calibration.confidence import CLASSES, far_off, signed, worst
from testbed.calibration.judge.judging import Judged
from testbed.output.table import seconds, spell_size
from testbed.report.validation import COLUMNS as JUDGED
from testbed.report.validation import MODEL, REFUSED, WORST, error_cells, errors_of_large, figures
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

SAME, OTHER = "same system, other sizes", "other systems"
COLUMNS = (
    *asked("preset", "systems"),
    *found("num_rows", "median_error", "worst_error", "small_median_error", "held", "classes"),
)
OF_PRESETS = (
    *asked("preset"),
    *found("same_system", "other_systems", "inside_a_node", "contradictions", "rows", "refused"),
)


def presets_result(presets: Sequence[PresetJudged]) -> Result:
    """Return each preset's errors, and in what it contradicts itself; one that does is a failure."""
    others = dict(_together(presets))[OTHER]
    rows = [{"preset": name, "systems": what, **figures(own)} for name, what, own in _lines(presets)]
    return Result(
        question="How far are networks that ship from published measurements of systems not used for them?",
        answer=far_off(errors_of_large(others)),
        method=["closed form", "simulated"],
        model=MODEL,
        rows=Rows(COLUMNS, rows),
        tables={"presets": Rows(OF_PRESETS, [_preset(own) for own in presets])},
        body={
            "same_systems": figures(dict(_together(presets))[SAME]),
            "other_systems": figures(others),
            "other_systems_by_model": {
                own[0].model: figures(own) for _, own in _by_other_models(presets) if own
            },
        },
        parts=list(_parts(presets)),
        failure="" if any(own.contradictions for own in presets) else None,
    )


def _preset(own: PresetJudged) -> dict[str, Any]:
    return {
        "preset": own.name,
        "same_system": figures(own.same),
        "other_systems": figures(own.other),
        "inside_a_node": [node.as_json() for node in own.node],
        "contradictions": list(own.contradictions),
        "rows": Rows.of(JUDGED, (*own.same, *own.other)).rows,
        "refused": Rows.of(REFUSED, own.refused).rows,
    }


def _parts(presets: Sequence[PresetJudged]) -> Iterator[Part]:
    heads = ("preset", "error in %: median (worst)", *CLASSES, "held", "model")
    yield Grid(heads, [(name, what, *error_cells(own)) for name, what, own in _lines(presets)], 2)
    alone = [own.name for own in presets if not own.same and not own.other]
    yield quiet(
        "Held: coverage, the rows inside their 90 % interval. Rows that no calibration has seen.",
        f"Nothing measured ships for {', '.join(alone)}.",
        gap=False,
    )
    yield Text(_contradictions(presets), gap=False)


def presets_section(presets: Sequence[PresetJudged]) -> Iterator[Part]:
    """Yield what a document says of the published collectives."""
    rows = [(name, what, *error_cells(own)[:-1]) for name, what, own in _lines(presets)]
    yield Grid(("preset", "systems", *CLASSES, "held"), rows, 2)
    cases = [
        (
            f"{row.family}, {spell_size(row.row.nbytes)}",
            row.bottleneck,
            seconds(row.predicted),
            seconds(row.measured),
            signed(row.error),
        )
        for row in worst((row for own in presets for row in own.other), WORST)
    ]
    heads = ("case", "most of the prediction is", "predicted", "measured", "error")
    yield Grid(heads, cases, 2, title="The worst of other systems")
    yield _inside_a_node(presets)
    carried = [(own.nbytes, own.error) for own in carried_to_a_later_generation()]
    small, large = (_percent(median_error(carried, large=large)) for large in (False, True))
    yield Text(
        [
            f"What takes dgx-a100 to dgx-h100 is within {small} % below 1 MiB and {large} % from there on.",
            *_contradictions(presets),
        ]
    )


def _inside_a_node(presets: Sequence[PresetJudged]) -> Grid:
    """Return the table of the library's collectives inside a node."""
    heads = ("preset", "collective", "ranks", "below 1 MiB", "from 1 MiB", "left out: below", "from")
    rows = []
    for own in presets:
        for node in own.node:
            cells = [
                _percent(median_error(errors, large=large))
                for errors in node.errors().values()
                for large in (False, True)
            ]
            ranks = ", ".join(str(count) for count in sorted({row.row.num_ranks for row in node.rows}))
            held = f"{sum(bool(row.held) for row in node.rows)} of {len(node.rows)}"
            rows.append((own.name, node.collective, ranks, *cells, held))
    return Grid((*heads, "NCCL's model: below", "from", "held"), rows, 3, title="NCCL inside a node")


def _contradictions(presets: Sequence[PresetJudged]) -> list[str]:
    contradictions = [
        f"{own.name} contradicts itself: {text}" for own in presets for text in own.contradictions
    ]
    return contradictions or ["No preset contradicts itself."]


def _lines(presets: Sequence[PresetJudged]) -> list[tuple[str, str, Sequence[Judged]]]:
    """Return rows by preset and by whether their system calibrated it, and those of all GPUs together."""
    apart = [
        (own.name, what, rows) for own in presets for what, rows in ((SAME, own.same), (OTHER, own.other))
    ]
    together = [("all GPUs", what, rows) for what, rows in (*_together(presets), *_by_other_models(presets))]
    return [line for line in apart if line[2]] + together


def _percent(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:.1f}"


def _together(presets: Sequence[PresetJudged]) -> list[tuple[str, Sequence[Judged]]]:
    return [
        (SAME, [row for own in presets if own.gpus for row in own.same]),
        (OTHER, [row for own in presets if own.gpus for row in own.other]),
    ]


def _by_other_models(presets: Sequence[PresetJudged]) -> list[tuple[str, Sequence[Judged]]]:
    """Return the rows of other systems by the models that the measured tables stand before."""
    return [
        (
            f"other systems, by {words}",
            [row for own in presets if own.gpus for row in own.alternatives[model]],
        )
        for model, words in (("nccl", "NCCL's model"), ("links", "links"))
    ]
