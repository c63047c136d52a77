"""Result of one training on several numbers of ranks, or by several words: whether each is as the first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.output.table import counted
from testbed.result import Grid, Result, Rows, Text, asked, found

if TYPE_CHECKING:
    from collectives.virtual.parameters.comparison import Comparison, Difference

MODEL = (
    "gradients of each step and parameters after it, those on which ranks agree, put together from shards: "
    "the norm of the difference over the norm; elements whose gradient is below 1e-6 of the model's largest "
    "are left out as rounding"
)

COLUMNS = (
    *asked("ranks", "words"),
    *found("same", "steps", "steps_of_first", "parameters_compared", "steps_compared"),
    *found("parting", "largest_difference", "left_out"),
)

MOST_LEFT_OUT = 3
"""Parameters of each run that are named where they could not be compared."""


@dataclass(frozen=True)
class Variant:
    """A run of the training: on so many ranks, with *words* for the script beside those of all runs."""

    ranks: int
    words: str = ""

    def arguments(self) -> list[str]:
        """Return the words one by one.

        Raises:
            UsageError: a quote in them does not end.
        """
        try:
            return shlex.split(self.words)
        except ValueError as error:
            raise UsageError(f"--vary {self.words!r}: {error}") from None

    def __str__(self) -> str:
        return self.words or counted(self.ranks, "rank")


def sameness_result(
    script: str, first: Variant, comparisons: Mapping[Variant, Comparison], tolerance: float
) -> Result:
    """Return whether *script* trains the same in other runs as in the *first*.

    Args:
        script: its path or name.
        first: with which the others were compared.
        comparisons: how they compare with it.
        tolerance: relative difference of a parameter that is rounding.
    """
    failures = [text for other, own in comparisons.items() if (text := _failure(first, other, own))]
    left_out = dict.fromkeys(text for own in comparisons.values() for text in own.left_out[:MOST_LEFT_OUT])
    most = max(len(own.left_out) for own in comparisons.values())
    others = ", ".join(map(str, comparisons))
    same = f"It is the same: {first} and {others}"
    return Result(
        question=f"Is the training of {script} the same: {first} and {others}?",
        answer=f"Not the same: {failures[0]}."
        if failures
        else f"{same}, but for {counted(most, 'parameter')} that could not be compared."
        if most
        else f"{same}.",
        method="simulated",
        model=MODEL,
        rows=Rows(
            COLUMNS,
            [{"ranks": run.ranks, "words": run.words, **_as_json(own)} for run, own in comparisons.items()],
        ),
        asked=("script", "tolerance"),
        body={
            "script": script,
            "tolerance": tolerance,
            "same": all(own.are_same for own in comparisons.values()),
        },
        parts=[_table(first, comparisons), Text([f"Not compared: {text}" for text in left_out], gap=False)],
        failure="\n".join(failures) if failures else None,
    )


def _table(first: Variant, comparisons: Mapping[Variant, Comparison]) -> Grid:
    runs = "with" if first.words else "ranks"
    as_first = f"as {'with' if first.words else 'on'} {first}"
    columns = (runs, as_first, "in", "difference", "parameters", "not compared", "steps")
    rows = []
    for run, own in comparisons.items():
        largest = own.largest
        place = f"{_what(largest)}, step {largest.step}" if largest and largest.relative else ""
        said = run.words or str(run.ranks), "same" if own.are_same else "no", place
        figures = own.compared[0], len(own.left_out), own.steps[1]
        rows.append((*said, "" if largest is None else _spell(largest.relative), *map(str, figures)))
    return Grid(columns, rows, text_columns=3)


def _failure(first: Variant, other: Variant, own: Comparison) -> str:
    """Return in words why a run is not the same as the first; nothing if it is."""
    runs = f"{first.words or first.ranks} and {other}"
    if own.parting is not None:
        where = f" ({own.parting.place})" if own.parting.place else ""
        when = f"in step {own.parting.step}{where}" if own.parting.step else "before the first step"
        why = f"; {own.parting.cause}" if own.parting.cause else ""
        return f"{runs} part {when}: {own.parting.model}, {_what(own.parting)}{_by(own.parting)}{why}"
    if own.largest is None:
        left_out = f": {'; '.join(own.left_out[:MOST_LEFT_OUT])}" if own.left_out else ""
        return f"{runs}: no parameter could be compared{left_out}"
    if own.steps[0] != own.steps[1]:
        return f"{runs} take {own.steps[0]} and {own.steps[1]} steps; give every run the same global batches"
    return ""


def _what(own: Difference) -> str:
    return f"{'gradient of ' if own.is_gradient else ''}{own.parameter}"


def _spell(relative: float) -> str:
    if not isfinite(relative):
        return "not finite"
    return f"{relative:.1e}" if relative else "0"


def _by(own: Difference) -> str:
    return f", by {own.relative:.1e} of its norm" if isfinite(own.relative) else ""


def _as_json(own: Comparison) -> dict[str, Any]:
    return {
        "same": own.are_same,
        "steps": own.steps[1],
        "steps_of_first": own.steps[0],
        "parameters_compared": own.compared[0],
        "steps_compared": own.compared[1],
        "parting": _difference_as_json(own.parting),
        "largest_difference": _difference_as_json(own.largest),
        "left_out": list(own.left_out),
    }


def _difference_as_json(own: Difference | None) -> dict[str, Any] | None:
    if own is None:
        return None
    return {**asdict(own), "relative": own.relative if isfinite(own.relative) else None}
