"""Belief in composed steps: how sure each is, and what measured steps, in a table, say of the others.

Each cause of a step (`testbed.planning.layouts.step.CAUSES`, and computation) takes its seconds times an
unknown factor, alike in all layouts, about which nothing is known but how far it is usually from one
(`USUAL`).  So a step is uncertain by its shares of uncertain causes, two layouts that lose to the same
causes are wrong alike, and a measured step moves all others: by linear regression with these factors as
what is believed before.  What is left between a prediction and its layout (`OWN`) is the layout's own.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf, exp, pi, sqrt
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.calibration.confidence import Interval, interval
from testbed.errors import UsageError
from testbed.planning.layouts import step
from testbed.planning.layouts.layout import PLACEMENTS, WORDS, ZERO_BUBBLE, Imbalance, Layout
from testbed.planning.layouts.search import AXES, Found, Search

FloatArray: TypeAlias = npt.NDArray[np.float64]

USUAL: Mapping[str, float] = {
    step.COMPUTATION: 0.08,
    step.BUBBLE: 0.15,
    step.UNEQUAL: 0.3,
    step.HOST: 0.3,
    step.TENSOR: 0.4,
    step.CONTEXT: 0.6,
    step.EXPERT: 0.6,
    step.TRANSFERS: 0.5,
    step.DATA: 0.4,
    step.OPTIMIZER: 0.3,
    step.RECOMPUTE: 0.15,
}
"""Standard deviation of each cause's factor: an assumption."""
OWN = 0.04
"""Standard deviation of what is a layout's own, as a part of its step: an assumption."""
UNMEASURED: Mapping[str, Callable[[Layout], bool]] = {
    "ZeRO 2 and 3": lambda own: own.zero >= 2,
    "interleaved": lambda own: own.schedule == "interleaved",
    "zero bubble": lambda own: own.schedule == ZERO_BUBBLE,
    "recompute": lambda own: own.recompute != "none",
    "cp": lambda own: own.cp > 1,
    "ep": lambda own: own.ep > 1,
    "placement": lambda own: own.placement != PLACEMENTS[0],
}
"""What no measured step has told of yet: each lengthens or shortens a step by a part of it (`UNTOLD`)."""
UNTOLD = 0.08
"""Standard deviation of that part: an assumption."""
NAMES = (*step.CAUSES, step.COMPUTATION)


@dataclass(frozen=True)
class Belief:
    """Factors of causes, as far as they are known.

    Attributes:
        mean: of each of `NAMES`, and the part by which each of `UNMEASURED` lengthens a step.
        covariance: of them.
    """

    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def before(cls) -> Belief:
        """Return what is believed before anything is measured."""
        deviations = [*(USUAL[name] for name in NAMES), *(UNTOLD for _ in UNMEASURED)]
        return cls(np.array([1.0] * len(NAMES) + [0.0] * len(UNMEASURED)), np.diag(np.square(deviations)))

    def after(self, found: Found, measured: float) -> Belief:
        """Return what is believed once a step of *found* has been *measured*, in seconds."""
        parts = _parts(found)
        own = self.covariance @ parts
        gain = own / (parts @ own + (OWN * measured) ** 2)
        return Belief(
            self.mean + gain * (measured - parts @ self.mean), self.covariance - np.outer(gain, own)
        )

    def seconds(self, found: Found) -> float:
        """Return what a step of *found* is taken to last."""
        return max(float(_parts(found) @ self.mean), 1e-9)

    def error(self, found: Found) -> float:
        """Return the standard deviation of that, as a part of it."""
        parts, own = _parts(found), OWN * self.seconds(found)
        return sqrt(float(parts @ self.covariance @ parts) + own * own) / self.seconds(found)

    def interval(self, found: Found, nodes: int) -> Interval | None:
        """Return where nine of ten measured steps of *found* lie on so many nodes, by those that were."""
        return interval(family_of(found.layout, nodes), self.seconds(found), self.error(found))

    def gain(self, found: Found, best: Found) -> float:
        """Return how many seconds *found* is expected to save over *best*, none where it is slower."""
        less = _parts(best) - _parts(found)
        own = OWN * self.seconds(found)
        deviation = sqrt(max(0.0, float(less @ self.covariance @ less)) + own * own)
        ratio = float(less @ self.mean) / deviation
        return deviation * (ratio * (1 + erf(ratio / sqrt(2))) / 2 + exp(-ratio * ratio / 2) / sqrt(2 * pi))


def worth_measuring(found: Sequence[Found], belief: Belief, number: int = 3) -> list[Found]:
    """Return the steps whose measurements help most to find the best: it, and what may be better still.

    Each is chosen as if those before had come out as predicted: what is wrong alike is measured once.
    """
    left, chosen = list(found), list[Found]()
    best = min(found, key=belief.seconds)
    while left and len(chosen) < number:
        gains = {id(own): belief.gain(own, best) for own in left}
        own = best if not chosen else max(left, key=lambda one: gains[id(one)])
        chosen.append(own)
        left = [one for one in left if one is not own]
        belief = belief.after(own, belief.seconds(own))
    return chosen


def family_of(layout: Layout, nodes: int) -> str:
    """Return the layouts that are wrong for the same reasons: on so many nodes, with a pipeline or not."""
    if nodes == 1:
        return "layout on one node"
    return f"{'pipelined ' if layout.pp > 1 else ''}layout on several nodes"


def _parts(found: Found) -> FloatArray:
    untold = (found.seconds if has(found.layout) else 0.0 for has in UNMEASURED.values())
    return np.array([*(found.lost[name] for name in NAMES), *untold])


Measured: TypeAlias = Mapping[Layout, float]
"""Seconds of a step, by its layout."""
_RATE = "tokens_per_second_per_gpu"


def read_measured(path: Path, search: Search) -> Measured:
    """Return the steps in the CSV at *path*; axes without a column are as a layout has them by default.

    Raises:
        UsageError: it cannot be read, has neither seconds nor a rate, or a row of other ranks.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--measured {path}: cannot be read as CSV: {error}") from None
    if not {"seconds", _RATE} & set(columns) or not set(AXES) & set(columns):
        raise UsageError(
            f"--measured {path}: expected columns of axes ({', '.join(AXES)}), and seconds or {_RATE}; got "
            f"{', '.join(columns) or 'none'}"
        )
    return dict(_step(row, f"--measured {path}, row {number}", search) for number, row in enumerate(rows, 1))


def _step(row: Mapping[str, str], where: str, search: Search) -> tuple[Layout, float]:
    given = {axis: row[axis] for axis in AXES if row.get(axis)}
    if "imbalance" not in given and len(search.imbalances) > 1:
        raise UsageError(f"{where}: no imbalance: expected one of {', '.join(search.imbalances)}")
    imbalance = str(Imbalance.parse(given.pop("imbalance", search.imbalances[0])))
    for axis, words in WORDS.items():
        if given.get(axis, words[0]) not in words:
            raise UsageError(f"{where}: {axis} {given[axis]}: expected one of {', '.join(words)}")
    try:
        axes = {name: own if name in WORDS else int(own) for name, own in given.items()}
        layout = Layout(**axes, imbalance=imbalance)  # type: ignore[arg-type]
        rate = float(row.get(_RATE) or 0)
        took = float(row.get("seconds") or 0) or search.seq * search.sequences / search.ranks / rate
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{where}: expected numbers above 0, got {dict(row)}") from None
    if layout.ranks != search.ranks or took <= 0:
        raise UsageError(
            f"{where}: expected dp × tp × pp × cp = {search.ranks} ranks and a time above 0, got "
            f"{layout.ranks} and {took:g} s"
        )
    return layout, took


def believed(belief: Belief, found: Sequence[Found], measured: Measured) -> Belief:
    """Return what is believed once those of *found* that are *measured* are known."""
    known = {own.layout: own for own in found}
    for layout, seconds in measured.items():
        if layout in known:
            belief = belief.after(known[layout], seconds)
    return belief
