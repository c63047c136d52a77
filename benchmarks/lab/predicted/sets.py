"""Kinds of tables of measurements: their columns, and what is predicted of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab.predicted import attention, exchanges, experts, nodes, products, steps
from benchmarks.lab.predicted.rows import Row
from collectives.errors import NotSupportedError
from testbed.calibration.confidence import size_class
from testbed.errors import UsageError

ANSWER = "predicted"
Predicted = Mapping[str, Any]


@dataclass(frozen=True)
class Set:
    """A kind of table.

    Attributes:
        needed: columns that it must have.
        predict: returns the columns that a row gets; nothing is ``None``.
        measured: the column that is predicted.
        also: further columns that a row gets, by the columns that they predict.
        kind: of a row, by which errors are grouped.
        limit: what limits a row, by its prediction.
    """

    needed: tuple[str, ...]
    predict: Callable[[Row], Predicted]
    measured: str = "time_us"
    also: Mapping[str, str] = field(default_factory=dict)
    kind: Callable[[Row], str] = lambda row: row["gpu"]
    limit: Callable[[Row], str] = lambda row: ""

    @property
    def columns(self) -> Mapping[str, str]:
        """Columns with what is predicted, by the columns that they predict."""
        return {self.measured: ANSWER, **self.also}


def _one(predict: Callable[[Row], float | None]) -> Callable[[Row], Predicted]:
    return lambda row: {ANSWER: predict(row)}


def _shape(is_so: bool, word: str) -> str:
    return f", {word}" if is_so else ", other"


def _of_products(row: Row) -> str:
    return f"{row['gpu']} {row['dtype']}{_shape(products.is_of_training(row), 'training')}"


SETS: Mapping[str, Set] = {
    "gemm": Set(
        products.NEEDED,
        predict=_one(lambda row: products.product_us(row, "burst")),
        kind=_of_products,
        limit=products.limit,
    ),
    "gemm_sustained": Set(
        products.NEEDED,
        predict=_one(lambda row: products.product_us(row, "steady")),
        kind=_of_products,
        limit=products.limit,
    ),
    "attention": Set(
        attention.NEEDED,
        predict=_one(attention.attention_us),
        kind=lambda row: (
            f"{row['gpu']} {'causal' if int(row['causal']) else 'all keys'}"
            f"{_shape(attention.is_large(row), 'large')}"
        ),
        limit=lambda row: row["kernel"],
    ),
    "moe": Set(
        experts.NEEDED,
        predict=_one(experts.layer_us),
        kind=lambda row: f"{row['gpu']} {row['distribution'].split('_')[0]}",
        limit=lambda row: row["kernel"],
    ),
    "nccl_one_node": Set(
        nodes.NEEDED,
        predict=_one(nodes.collective_us),
        kind=lambda row: f"{row['gpu']} {row['collective']}",
        limit=lambda row: size_class(int(row["bytes"])),
    ),
    "deepep_normal": Set(
        exchanges.NEEDED,
        predict=exchanges.predicted,
        measured="dispatch_us",
        also={"combine_us": "predicted_combine_us"},
        kind=lambda row: f"{row['gpu']} {row['nodes']} × {int(row['gpus']) // int(row['nodes'])}",
        limit=lambda row: f"{row['tokens']} tokens",
    ),
    "ultrascale": Set(
        steps.NEEDED,
        measured="tokens_per_s_per_gpu",
        predict=steps.predicted,
        kind=lambda row: f"{row['model']} on {row['gpus']}",
        limit=steps.limit,
    ),
}


def set_of(file: Path, columns: Sequence[str]) -> str:
    """Return which set a table is: the one that its file is named after, else the first whose columns it has.

    Raises:
        UsageError: it is none.
    """
    if file.stem in SETS:
        return file.stem
    if "short_time_us" in columns:
        return "gemm_sustained"
    fitting = (name for name, own in SETS.items() if {*own.needed, own.measured} <= {*columns})
    name = next(fitting, None)
    if name is None:
        raise UsageError(
            f"{file}: expected the columns of a set, such as {', '.join(products.NEEDED)}, time_us; "
            f"got {', '.join(columns)}; sets: {', '.join(SETS)}"
        )
    return name


def predict_rows(
    own: Set, rows: Sequence[Row], advance: Callable[[int], None]
) -> tuple[list[Predicted], dict[str, int]]:
    """Return what is predicted of each row, and how many stay empty, by the reason."""
    answers: list[Predicted] = []
    refused: dict[str, int] = {}
    for number, row in enumerate(rows):
        advance(number)
        try:
            answers.append(own.predict(row))
        except (NotSupportedError, UsageError, KeyError, ValueError) as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            answers.append({})
    return answers, refused


def error_of(predicted: Any, value: str | None) -> float | None:
    """Return predicted over measured, less one; None where one of both is not there."""
    if predicted is None or not value or not float(value):
        return None
    return float(predicted) / float(value) - 1
