"""Rows of tables beside what was foretold of them, before what was measured was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lab.predicted.rows import Row, read_rows, sampled
from benchmarks.lab.predicted.sets import SETS, Predicted, predict_rows, set_of
from collectives.formats.whole_file import write_whole
from testbed.calibration.confidence import Compared
from testbed.output.table import grouped

_FOUND = frozenset({
    "time_us", "short_time_us", "power_w", "algbw_GBps", "busbw_GBps", "dispatch_us", "combine_us",
    "dispatch_notify_us", "combine_notify_us", "tokens_per_s_per_gpu", "mfu_percent", "peak_gb", "failed",
    "failure_contradicted",
})  # fmt: skip
"""Columns that say what was measured."""
_ALIKE = ("model", "tp", "pp", "zero", "mbs")
"""Columns in which steps agree that differ in the number of nodes."""


@dataclass(frozen=True)
class JudgedRow(Compared):
    """A row beside its prediction, both in the unit of its set.

    Attributes:
        set: that the row is of.
        row: as its table has it.
        kind: by which errors of a set are grouped.
        limit: what limits it, by its prediction.
    """

    set: str
    row: Row
    kind: str
    limit: str

    @property
    def parallelism(self) -> str:
        """Along which axes a training step is divided; nothing for what is no step."""
        if "tp" not in self.row or "zero" not in self.row:
            return ""
        axes = [name for name in ("dp", "tp", "pp") if int(self.row[name]) > 1]
        return " × ".join(axes) or "one GPU"


@dataclass(frozen=True)
class Table:
    """A table that was judged.

    Attributes:
        name: of its file.
        set: that it is.
        of: rows that the file has.
        rows: with the columns that are predicted.
        answers: of each row, empty where no model says anything.
        refused: rows left empty, by the reason.
    """

    name: str
    set: str
    of: int
    rows: Sequence[Row]
    answers: Sequence[Predicted]
    refused: Mapping[str, int]

    @property
    def digest(self) -> str:
        """SHA-256 of what was foretold."""
        text = json.dumps([_foretold(row, own) for row, own in zip(self.rows, self.answers, strict=True)])
        return hashlib.sha256(text.encode()).hexdigest()

    def judged(self) -> Iterator[JudgedRow]:
        """Yield the rows of which both is known."""
        own = SETS[self.set]
        for row, answer in zip(self.rows, self.answers, strict=True):
            for measured, column in own.columns.items():
                value, predicted = row.get(measured), answer.get(column)
                if value and predicted is not None and float(value):
                    kind = f"{own.kind(row)}{f' {measured}' if own.also else ''}"
                    yield JudgedRow(float(predicted), float(value), self.set, row, kind, own.limit(row))

    def fits(self) -> list[tuple[bool, bool]]:
        """Return whether steps were foretold to fit, and whether they did; without contradicted failures."""
        return [
            (bool(answer["predicted_fits"]), row["failed"] != "1")
            for row, answer in zip(self.rows, self.answers, strict=True)
            if row.get("failed") and "predicted_fits" in answer and row.get("failure_contradicted") != "1"
        ]

    def peaks(self) -> list[Compared]:
        """Return the memory of steps, GiB."""
        return [
            Compared(float(answer["predicted_peak_gb"]), float(row["peak_gb"]))
            for row, answer in zip(self.rows, self.answers, strict=True)
            if row.get("peak_gb") and "predicted_peak_gb" in answer
        ]


def foretell(
    files: Sequence[Path], sample: int, seed: int, into: Path, advance: Callable[[str], None]
) -> list[Table]:
    """Predict *sample* rows of each of *files*, and write the predictions down before they are compared.

    What was measured is taken from the rows before any model sees them.

    Raises:
        UsageError: a file that cannot be read, or has the columns of no set.
    """
    tables = []
    for file in files:
        rows = read_rows(file, ())
        name = set_of(file, list(rows[0]))
        own, drawn = SETS[name], sampled(rows, sample, seed)
        read_rows(file, own.needed)
        advance(file.name)
        unseen = [{key: value for key, value in row.items() if key not in _FOUND} for row in drawn]
        answers, refused = predict_rows(own, unseen, lambda number: None)
        tables.append(Table(file.name, name, len(rows), drawn, answers, refused))
    document = {
        table.name: {
            "sha256": table.digest,
            "rows": [_foretold(row, own) for row, own in zip(table.rows, table.answers, strict=True)],
        }
        for table in tables
    }
    write_whole(into, json.dumps(document, indent=1))
    return tables


def lost_to_scaling(rows: Sequence[JudgedRow]) -> list[tuple[float, float]]:
    """Return what steps on several nodes lose beside the same layout on the fewest, foretold and measured.

    Layouts are the same where they differ in data parallelism alone; of repeated rows the median counts.
    """
    found = []
    for alike in grouped(
        (one for one in rows if "zero" in one.row), lambda one: tuple(one.row[name] for name in _ALIKE)
    ).values():
        by_nodes = grouped(alike, lambda one: int(one.row["nodes"]))
        fewest = min(by_nodes)
        for nodes, own in by_nodes.items():
            if nodes > fewest:
                base = by_nodes[fewest]
                predicted = median(one.predicted for one in own) / median(one.predicted for one in base)
                measured = median(one.measured for one in own) / median(one.measured for one in base)
                found.append((1 - predicted, 1 - measured))
    return found


def _foretold(row: Row, answer: Predicted) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in _FOUND} | dict(answer)
