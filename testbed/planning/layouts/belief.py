"""Belief in composed steps: how sure each is, and what measured steps say of the others.

Each cause of a step (`testbed.planning.layouts.step.CAUSES`, and computation) takes its seconds times an
unknown factor, alike in all layouts, about which nothing is known but how far it is usually from one
(`USUAL`).  So a step is uncertain by its shares of uncertain causes, two layouts that lose to the same
causes are wrong alike, and a measured step moves all others: by linear regression with these factors as
what is believed before.  What is left between a prediction and its layout (`OWN`) is the layout's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import erf, exp, pi, sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from testbed.calibration.confidence import Interval, interval
from testbed.planning.layouts.layer import CONTEXT, EXPERT, TENSOR
from testbed.planning.layouts.layout import PLACEMENTS, Layout
from testbed.planning.layouts.search import Found
from testbed.planning.layouts.step import (
    BUBBLE,
    CAUSES,
    COMPUTATION,
    DATA,
    HOST,
    OPTIMIZER,
    RECOMPUTE,
    TRANSFERS,
    UNEQUAL,
)

FloatArray: TypeAlias = npt.NDArray[np.float64]

USUAL: Mapping[str, float] = {
    COMPUTATION: 0.08,
    BUBBLE: 0.15,
    UNEQUAL: 0.3,
    HOST: 0.3,
    TENSOR: 0.4,
    CONTEXT: 0.6,
    EXPERT: 0.6,
    TRANSFERS: 0.5,
    DATA: 0.4,
    OPTIMIZER: 0.3,
    RECOMPUTE: 0.15,
}
"""Standard deviation of each cause's factor: an assumption."""
OWN = 0.04
"""Standard deviation of what is a layout's own, as a part of its step: an assumption."""
UNMEASURED: Mapping[str, Callable[[Layout], bool]] = {
    "ZeRO 2 and 3": lambda own: own.zero >= 2,
    "interleaved": lambda own: own.schedule != "1f1b",
    "recompute": lambda own: own.recompute != "none",
    "cp": lambda own: own.cp > 1,
    "ep": lambda own: own.ep > 1,
    "placement": lambda own: own.placement != PLACEMENTS[0],
}
"""What no measured step has told of yet: each lengthens or shortens a step by a part of it (`UNTOLD`)."""
UNTOLD = 0.08
"""Standard deviation of that part: an assumption."""
NAMES = (*CAUSES, COMPUTATION)


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
