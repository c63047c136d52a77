"""Intervals of predictions: the factors within which nine of ten measured rows lie, family by family.

    python -m benchmarks.lab.intervals --layouts ultrascale.csv --scripts scripts.json

A family's rows are in groups: what was measured together, such as a cluster, a model, a set of a publication.
Each group is left out in turn; the interval of the others, from the 5th to the 95th percentile, is widened
(as a logarithm, alike on both sides) until nine of ten rows that were left out are held, and so much is the
family's own interval widened. One group alone says nothing of others, and its rows are not widened.

Left out: pipelined steps that stalled. One in seven that were measured took half a second (two stages) or
1.0 to 1.4 s (more) longer for each micro-batch, whatever its model, and none anything between 0.1 and 0.35 s:
a fault of that cluster or its software (assumed), with which no layout is charged.

Of composed layouts the plan says itself how sure it is; there a row's factor is to the power of one over
that deviation (`testbed.planning.layouts.belief`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.lab.predicted.rows import read_rows
from benchmarks.lab.predicted.steps import NEEDED, machine, training_of
from benchmarks.lab.program import program, start
from benchmarks.lab.published.split import calibrating_presets, published_split
from benchmarks.lab.published.training import compared, ring_rate
from benchmarks.lab.published.training_rows import trainings
from sim import load_network
from testbed.calibration.confidence import FILE, LIBRARY, NCCL, known_families, size_class
from testbed.calibration.judge.judging import judge
from testbed.options.command import command
from testbed.output.table import grouped, progress
from testbed.planning.layouts.belief import Belief, family_of
from testbed.planning.layouts.search import Found
from testbed.planning.layouts.step import lost
from testbed.result import Grid, Result, Rows, asked, found, quiet

EXAMPLES = """\b
Examples:
  python -m benchmarks.lab.intervals --layouts ultrascale.csv --scripts scripts.json
"""
MODEL = "groups of measured rows are left out in turn, and intervals widened until nine of ten are held"
HELD = 0.9
SHAPED = Path("tests/data/shaped.json")
STALL = 0.35
"""Seconds beyond the prediction for each micro-batch, from which a pipelined step stalled."""
_RATE = "tokens_per_s_per_gpu"


@dataclass(frozen=True)
class Row:
    """A measured row beside its prediction.

    Attributes:
        family: of predictions that are wrong for the same reasons.
        group: of rows that were measured together.
        factor: measured over predicted time, as a logarithm.
    """

    family: str
    group: str
    factor: float

    @classmethod
    def of(cls, family: str, group: str, measured: float, predicted: float, deviation: float = 1.0) -> Row:
        """Return the row of something that takes so many seconds."""
        return cls(family, group, float(np.log(measured / predicted)) / deviation)


def interval_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the interval of one family: factors, rows, groups, and the part held of groups left out."""
    groups = [np.array([row.factor for row in own]) for own in grouped(rows, lambda row: row.group).values()]
    low, high = np.quantile(np.concatenate(groups), (0.05, 0.95))
    counts = {"rows": len(rows), "groups": len(groups)}
    if len(groups) == 1:
        return {"low": float(np.exp(low)), "high": float(np.exp(high)), **counts}
    beyond = []
    for number, own in enumerate(groups):
        others = np.concatenate([one for place, one in enumerate(groups) if place != number])
        least, most = np.quantile(others, (0.05, 0.95))
        beyond.append(np.maximum(np.maximum(least - own, own - most), 0.0))
    missed = np.sort(np.concatenate(beyond))
    wider = float(np.quantile(missed, HELD, method="higher"))
    held = float(np.mean(missed <= wider))
    return {"low": float(np.exp(low - wider)), "high": float(np.exp(high + wider)), **counts, "held": held}


def collectives() -> Iterator[Row]:
    """Yield the rows that calibrate presets, by NCCL's model and by the likely times of the library's own."""
    rows = published_split().calibrating
    for preset, systems in calibrating_presets().items():
        network = load_network(preset)
        if network.fields.hardware is None:
            continue
        bare = replace(network, fields=network.fields.model_copy(update={"measured": []}))
        own = [row for row in rows if row.system in systems]
        for family, described, model in ((NCCL, network, NCCL), (LIBRARY, bare, None)):
            for one in judge(own, described, lambda *_: None, model)[0]:
                name = f"{family}, {size_class(one.row.nbytes)}"
                yield Row.of(name, one.row.system, one.measured, one.predicted)


def shaped() -> Iterator[Row]:
    """Yield collectives and steps over Gloo on networks that were built, as a test keeps them."""
    for row in json.loads(SHAPED.read_text("utf-8"))["rows"]:
        measured = float(np.median(row["seconds"]))
        if row["family"] == "step":
            yield Row.of("step over Gloo", row["network"], measured, row["predicted_seconds"])
        elif row["family"] == "collective":
            family = f"program over Gloo, {size_class(row['nbytes'])}"
            yield Row.of(family, row["network"], measured, row["predicted_seconds"])


def steps() -> Iterator[Row]:
    """Yield published trainings, of which the step of one GPU was given; by set, over nodes by model."""
    known = [one for one in trainings() if one.role != "left out"]
    rate = ring_rate(one for one in known if one.role == "calibrate")
    for own in compared([one for one in known if one.role == "judge"], rate):
        training = own.training
        several = training.nodes > 1
        family = f"step on {'several nodes' if several else 'one node'}"
        group = training.profile if several else training.set
        yield Row.of(family, group, 1 - own.predicted, 1 - own.measured)


def layouts(path: Path) -> Iterator[Row]:
    """Yield the steps of the CSV at *path* beside their composition, by model and nodes."""
    belief = Belief.before()
    for row in read_rows(path, ("model", _RATE, *NEEDED)):
        training, nodes = training_of(row), int(row["nodes"])
        if not row[_RATE] or training.leaves_stages_empty:
            continue
        own = Found(training.layout, lost(training, machine(int(row["gpus"]))), 0)
        measured = training.tokens / float(row[_RATE]) / int(row["gpus"])
        if training.layout.pp > 1 and measured - own.seconds > STALL * int(row["ga"]):
            continue
        group = f"{row['model']}, {nodes} nodes"
        yield Row.of(
            family_of(training.layout, nodes), group, measured, belief.seconds(own), belief.error(own)
        )


def scripts(path: Path) -> Iterator[Row]:
    """Yield the rows of ``python -m benchmarks.lab.truth --scripts --json``, in samples per second."""
    for row in json.loads(path.read_text("utf-8"))["rows"]:
        yield Row.of("run on one node", f"{row['set']}, {row['device']}", row["predicted"], row["measured"])


@command
def intervals(
    layouts_file: Annotated[
        Path | None, typer.Option("--layouts", help="Measured steps, as ultrascale.csv has them.")
    ] = None,
    scripts_file: Annotated[
        Path | None, typer.Option("--scripts", help="JSON of benchmarks.lab.truth --scripts.")
    ] = None,
) -> Result:
    """Write within what nine of ten measurements lie of each family; those without a file stay."""
    with progress() as advance:
        rows = list[Row]()
        for name, own in (("collectives", collectives), ("shaped networks", shaped), ("trainings", steps)):
            advance(name)
            rows += own()
        rows += layouts(layouts_file) if layouts_file else ()
        rows += scripts(scripts_file) if scripts_file else ()
    families = {name: interval_of(own) for name, own in grouped(rows, lambda row: row.family).items()}
    FILE.write_text(as_toml({**known_families(), **families}), encoding="utf-8")
    table = [{"family": name, **own} for name, own in families.items()]
    return Result(
        question="Within what do nine of ten measurements lie of a prediction?",
        answer=f"{len(rows)} measured rows say it of {len(families)} families; {FILE.name} is written",
        method="measured",
        model=MODEL,
        rows=Rows((*asked("family"), *found("low", "high", "rows", "groups", "held")), table),
        parts=[
            Grid(
                ("family", "rows", "groups", "from", "to", "held"),
                [
                    (
                        own["family"], str(own["rows"]), str(own["groups"]), f"{own['low']:.3f}",
                        f"{own['high']:.3f}", f"{own['held']:.0%}" if "held" in own else "–",
                    )
                    for own in table
                ],
            ),
            quiet(f"Factors of the predicted time: {MODEL}."),
        ],
    )  # fmt: skip


def as_toml(families: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the file."""
    lines = ["# Factors of a predicted time, as `python -m benchmarks.lab.intervals` found and wrote them."]
    for name, own in families.items():
        lines += ["", f'["{name}"]']
        lines += [
            f"{key} = {value:.4f}" if isinstance(value, float) else f"{key} = {value}"
            for key, value in own.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    start(program(intervals, EXAMPLES), "benchmarks.lab.intervals")
