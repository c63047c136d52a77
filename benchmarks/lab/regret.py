"""Regret of planned layouts: what their best loses to the best that was measured, in each cell of a table.

python -m benchmarks.lab.regret ultrascale.csv
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import typer

from benchmarks.lab.predicted.rows import Row, grouped, read_rows
from benchmarks.lab.predicted.steps import NEEDED, machine, training_of
from benchmarks.lab.program import program, start
from testbed.errors import UsageError
from testbed.options.command import command
from testbed.output.table import percent, progress
from testbed.planning.layouts.belief import Belief, worth_measuring
from testbed.planning.layouts.framework import peak_bytes
from testbed.planning.layouts.layout import Layout
from testbed.planning.layouts.search import Found
from testbed.planning.layouts.step import lost
from testbed.result import Grid, Result, Rows, asked, found, quiet

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.regret ultrascale.csv
"""
MODEL = (
    "a cell is a model on so many nodes; of its measured layouts the plan's best is taken, and the next "
    "where that did not run; then the three that the plan names are measured, and correct it"
)
LEAST = 5
"""Layouts that ran in a cell that judges."""
_RATE = "tokens_per_s_per_gpu"


@dataclass(frozen=True)
class Cell:
    """A model on so many nodes.

    Attributes:
        name: of it.
        found: what is predicted of layouts that were tried, by layout.
        rates: tokens a second and GPU of those that ran, the median of repeats.
    """

    name: str
    found: Mapping[Layout, Found]
    rates: Mapping[Layout, float]

    @classmethod
    def of(cls, name: str, rows: Sequence[Row]) -> Cell:
        """Return that of the *rows* of a table."""
        predicted, measured = dict[Layout, Found](), dict[Layout, list[float]]()
        for row in rows:
            training, on = training_of(row), machine(int(row["gpus"]))
            if row["failed"] != "1":
                measured.setdefault(training.layout, []).append(float(row[_RATE]))
            if not training.leaves_stages_empty:
                peak = peak_bytes(training, on.framework.memory)
                predicted[training.layout] = Found(training.layout, lost(training, on), peak)
        return cls(name, predicted, {layout: median(rates) for layout, rates in measured.items()})

    def picked(self, ranked: Sequence[Found]) -> tuple[float, int]:
        """Return the regret of the first that ran, and how many before it did not."""
        best = max(self.rates.values())
        for failed, own in enumerate(ranked):
            if own.layout in self.rates:
                return 1 - self.rates[own.layout] / best, failed
        return 1.0, len(ranked)

    def after(self, fitting: Sequence[Found], work: float) -> float:
        """Return the regret once three layouts that the plan names have told their step of so many tokens."""
        ran = [own for own in fitting if own.layout in self.rates]
        known, belief = dict[Layout, float](), Belief.before()
        for own in worth_measuring(ran, belief):
            known[own.layout] = work / self.rates[own.layout]
            belief = belief.after(own, known[own.layout])
        return self.picked(sorted(ran, key=lambda own: known.get(own.layout, belief.seconds(own))))[0]


def _cell(row: Row) -> str:
    """Return what tells cells apart: the model, nodes and tokens of a step."""
    return " ".join([row["model"], row["kv_heads"], row["nodes"], str(training_of(row).tokens)])


@command
def regret(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows as ultrascale.csv has them.")],
) -> Result:
    """Say what planned layouts lose to the best that was measured, before and after three are measured."""
    rows = read_rows(file, ("model", _RATE, "failed", *NEEDED))
    groups = grouped(rows, _cell)
    belief, table = Belief.before(), list[dict[str, Any]]()
    with progress(len(groups)) as advance:
        for name, own in groups.items():
            advance(name)
            on, training = machine(int(own[0]["gpus"])), training_of(own[0])
            memory = on.kernels.device.memory_bytes
            cell = Cell.of(name, own)
            if len(cell.rates) < LEAST or memory is None:
                continue
            fitting = [
                one for one in cell.found.values() if one.peak_bytes <= on.framework.memory.usable * memory
            ]
            before, failed = cell.picked(sorted(fitting, key=belief.seconds))
            table.append(
                {
                    "model": own[0]["model"],
                    "nodes": int(own[0]["nodes"]),
                    "layouts": len(cell.rates),
                    "regret": before,
                    "failed": failed,
                    "regret_measured": cell.after(fitting, training.tokens / training.layout.ranks),
                }
            )
    if not table:
        raise UsageError(f"{file}: expected a model and number of nodes with {LEAST} layouts that ran")
    mean_regret, worst = mean(row["regret"] for row in table), max(row["regret"] for row in table)
    told = [row["regret_measured"] for row in table]
    return Result(
        question=f"What do planned layouts lose to the best of {file.name}?",
        answer=f"{percent(mean_regret)} on average, {percent(worst)} at worst; once three are measured "
        f"{percent(mean(told))} and {percent(max(told))}",
        method="simulated",
        model=MODEL,
        rows=Rows(
            (*asked("model", "nodes"), *found("layouts", "regret", "failed", "regret_measured")), table
        ),
        parts=[
            Grid(
                ("model", "nodes", "layouts", "regret", "failed before", "once three are measured"),
                [
                    (
                        row["model"],
                        *(str(row[name]) for name in ("nodes", "layouts")),
                        percent(row["regret"]),
                        str(row["failed"]),
                        percent(row["regret_measured"]),
                    )
                    for row in table
                ],
            ),
            quiet(f"Regret: {MODEL}."),
        ],
    )


if __name__ == "__main__":
    start(program(regret, EXAMPLES), "benchmarks.lab.regret")
