"""Predictions of measured rows: the same rows with a column more.

python -m benchmarks.lab.predict gemm rows.csv --output predicted.csv
python -m benchmarks.lab.predict attention rows.csv --output predicted.csv --sample 100 --seed 1
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.lab.predicted.devices import device_name, has_file
from benchmarks.lab.predicted.rows import Errors, read_rows, sampled
from benchmarks.lab.predicted.sets import ANSWER, SETS, Predicted, Set, error_of, predict_rows
from benchmarks.lab.program import program, start
from collectives.formats.whole_file import whole_file
from testbed.errors import UsageError
from testbed.options.command import command
from testbed.output.folder import check_writable
from testbed.output.table import counted, progress
from testbed.result import Grid, Part, Result, Rows, asked, found, quiet, warning

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.predict gemm gemm.csv --output predicted.csv
  python -m benchmarks.lab.predict attention attention.csv --output predicted.csv --sample 100 --seed 1
"""
MODEL = (
    "what a virtual GPU is charged: kernels by the constants of the device's file, collectives by the "
    "network's; short runs of a kernel at the clocks of a cool board, long ones at those that power leaves"
)


@command
def predict(
    name: Annotated[str, typer.Argument(metavar="SET", help=f"One of {', '.join(SETS)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows as CSV.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where the rows go, with what is predicted.")],
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only so many rows, drawn by --seed.")
    ] = None,
    seed: Annotated[int, typer.Option(help="--sample: which rows are drawn.")] = 0,
) -> Result:
    """Predict each row of a table of measurements, and say how far off that is where rows have their values.

    What is measured is not read but to be compared. Kernels: gemm (short runs), gemm_sustained (a second
    long), attention, moe. Collectives: nccl_one_node, deepep_normal (predicted is dispatch). Training steps:
    ultrascale, with what a step takes of memory. A row of which no model says anything stays empty.
    """
    if name not in SETS:
        raise UsageError(f"{name}: expected a set, one of {', '.join(SETS)}")
    own = SETS[name]
    check_writable(output)
    rows = sampled(read_rows(file, own.needed), sample, seed)
    columns = list(rows[0])
    with progress(len(rows)) as advance:
        answers, refused = predict_rows(
            own, rows, lambda number: advance(f"row {number + 1}", completed=number)
        )
    added = list(dict.fromkeys(name for answer in answers for name in answer)) or [ANSWER]
    with whole_file(output) as path, path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, [*columns, *added])
        writer.writeheader()
        for row, answer in zip(rows, answers, strict=True):
            writer.writerow({**row, **{name: _cell(answer.get(name)) for name in added}})
    return _result(name, own, rows, answers, refused, output, None if sample is None else seed)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _result(
    name: str,
    own: Set,
    rows: list[dict[str, str]],
    answers: Sequence[Predicted],
    refused: Mapping[str, int],
    output: Path,
    seed: int | None,
) -> Result:
    by_kind = dict[str, list[float]]()
    for measured, column in own.columns.items():
        of = f" {measured.removesuffix('_us')}" if own.also else ""
        for row, answer in zip(rows, answers, strict=True):
            error = error_of(answer.get(column), row.get(measured))
            if error is not None:
                by_kind.setdefault(own.kind(row) + of, []).append(error)
    everything = Errors.of(chain.from_iterable(by_kind.values()))
    table = [(kind, errors) for kind in sorted(by_kind) if (errors := Errors.of(by_kind[kind])) is not None]
    answered = sum(answer.get(ANSWER) is not None for answer in answers)
    said = f"{answered} of {counted(len(rows), 'row')} predicted"
    parts: list[Part] = [
        Grid(
            ("rows of", "count", "median", "nine in ten", "signed"),
            [
                (
                    kind,
                    str(own.count),
                    *(f"{100 * x:.1f} %" for x in (own.median, own.ninth)),
                    f"{100 * own.signed:+.1f} %",
                )
                for kind, own in table
            ],
            title=f"Errors of {name}",
        )
    ]
    if nearest := sorted({row["gpu"] for row in rows if "gpu" in row and not has_file(row["gpu"])}):
        words = "; ".join(f"{gpu} as {device_name(gpu)}" for gpu in nearest)
        parts.append(warning(f"No device file of their own, predicted as the nearest: {words}."))
    parts += [warning(f"{reason}: {counted(count, 'row')} left empty.") for reason, count in refused.items()]
    parts.append(quiet(f"Predicted: {MODEL}."))
    return Result(
        question=f"How far are the rows of {name} from what is predicted?",
        answer=said if everything is None else f"{said}, off by {100 * everything.median:.1f} % (median)",
        method="simulated",
        model=MODEL,
        rows=Rows(
            (*asked("kind"), *found("count", "median_error", "ninth_error", "signed_error")),
            [
                {
                    "kind": kind,
                    "count": e.count,
                    "median_error": e.median,
                    "ninth_error": e.ninth,
                    "signed_error": e.signed,
                }
                for kind, e in table
            ],
        ),
        parts=parts,
        seed=seed,
        files={"Rows": output},
    )


if __name__ == "__main__":
    start(program(predict, EXAMPLES), "benchmarks.lab.predict")
