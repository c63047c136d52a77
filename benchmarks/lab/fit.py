"""Constants of device files, fitted to tables of measured kernels.

python -m benchmarks.lab.fit gemm gemm.csv
python -m benchmarks.lab.fit attention attention.csv --gpu h100_sxm
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.lab.predicted import attention, experts, products, steps
from benchmarks.lab.predicted.fitting import (
    Fit,
    fit_attention,
    fit_experts,
    fit_memory,
    fit_products,
    fit_steady,
)
from benchmarks.lab.predicted.rows import Row, grouped, read_rows
from benchmarks.lab.program import program, start
from testbed.errors import UsageError
from testbed.options.command import command
from testbed.output.table import counted, progress
from testbed.result import Grid, Result, Rows, asked, found, quiet

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.fit gemm gemm.csv
  python -m benchmarks.lab.fit attention attention.csv --gpu h100_sxm
"""
MODEL = (
    "least squares of the logarithm of predicted by measured time, large errors counted linearly; a quarter "
    "of the shapes, by a hash, is kept back and judges"
)
LEAST_ROWS = 10
"""Rows that a kind of kernel needs to be fitted."""


def _attention_family(row: Row) -> str:
    name = attention.FAMILIES.get(row["kernel"], row["kernel"])
    return f"{name}_fp8" if row["dtype"] == "fp8" else name


Kind = tuple[Sequence[str], Callable[[Row], str], Callable[[Sequence[Row]], Fit]]
SETS: Mapping[str, Kind] = {
    "gemm": ((*products.NEEDED, "time_us"), lambda row: row["dtype"], fit_products),
    "gemm_sustained": ((*products.NEEDED, "time_us"), lambda row: row["dtype"], fit_steady),
    "attention": ((*attention.NEEDED, "time_us"), _attention_family, fit_attention),
    "moe": ((*experts.NEEDED, "time_us"), experts.kernels_of, fit_experts),
    "ultrascale": ((*steps.NEEDED, "peak_gb"), lambda row: "memory", fit_memory),
}
"""Columns of tables, the measured one last, what of a GPU is fitted by itself, and how."""


@command
def fit(
    name: Annotated[str, typer.Argument(metavar="SET", help=f"One of {', '.join(SETS)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows as CSV, with what was measured.")],
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="Only this GPU's rows.")] = None,
) -> Result:
    """Fit the constants of device files to a table of measurements, and judge them on what is kept back.

    Rows with reference = 0 are left out. The same rows give the same constants. Those of kernels are parts of
    the device's peaks, as its file has them; those of ultrascale, memory beside what is counted by name, are
    the framework's (testbed/planning/layouts/framework.py). A person enters them there, with their source.
    """
    if name not in SETS:
        raise UsageError(f"{name}: expected a set, one of {', '.join(SETS)}")
    needed, kind, fitted = SETS[name]
    rows = [
        row
        for row in read_rows(file, needed)
        if row.get("reference") != "0" and gpu in (None, row.get("gpu")) and row[needed[-1]]
    ]
    groups = grouped(rows, lambda row: f"{row.get('gpu', '')} {kind(row)}")
    fits = []
    with progress(len(groups)) as advance:
        for number, (title, own) in enumerate(groups.items()):
            advance(title, completed=number)
            if len(own) >= LEAST_ROWS:
                fits.append(fitted(own))
    if not fits:
        most = max(map(len, groups.values()), default=0)
        raise UsageError(
            f"{file}: expected at least {LEAST_ROWS} rows of one GPU and kind; got at most {most}"
            f"{'' if gpu is None else f', with --gpu {gpu}'}"
        )
    return Result(
        question=f"With which constants does the model say what {file.name} has measured?",
        answer=f"{counted(len(fits), 'kind')} fitted",
        method="measured",
        model=MODEL,
        rows=Rows(
            (*asked("name"), *found("constants", "seen", "kept_back", "chosen")), list(map(asdict, fits))
        ),
        parts=[
            Grid(
                ("fitted", "constants", "seen", "kept back", "of training, or large"),
                [
                    (
                        one.name,
                        ", ".join(f"{key} {value:.3g}" for key, value in one.constants.items()),
                        *(str(errors or "–") for errors in (one.seen, one.kept_back, one.chosen)),
                    )
                    for one in fits
                ],
                text_columns=2,
                title="Constants; errors in percent: median / nine in ten (signed)",
            ),
            quiet(f"Fitted: {MODEL}."),
        ],
    )


if __name__ == "__main__":
    start(program(fit, EXAMPLES), "benchmarks.lab.fit")
