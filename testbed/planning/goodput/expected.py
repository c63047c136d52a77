"""Expected goodput in closed form, with failures that have no memory and may come at any time.

After a failure, at rate λ, an outage of ρ seconds follows, which a further failure begins anew, so that it
takes r = (exp(λρ) - 1)/λ on average.  Training goes on from the last checkpoint that is safe.  Between
checkpoints are τ seconds of training and a stall of δ; a checkpoint is safe w seconds after its stall.  From
one that becomes safe to the next, with L = τ + δ, it takes

    A = (1 - exp(-λL)) (1/λ + r + B),   B = (exp(λ(L + w)) - 1) (1/λ + r)

of which τ counts; with w = 0 that is Daly's exp(λρ) (exp(λL) - 1)/λ, whose first order gives Young's interval
sqrt(2δ/λ).

Sources: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22
(2006), equation 13; J. W. Young, CACM 17 (1974).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.planning.goodput.policy import Setting

CHECKPOINT, LOST_WORK, RESTART, WAITING, DEGRADED, FEWER = (
    "checkpoints",
    "lost work",
    "restarts",
    "waiting for nodes",
    "degraded nodes",
    "fewer nodes",
)
CAUSES = (CHECKPOINT, LOST_WORK, RESTART, WAITING, DEGRADED, FEWER)
LEAST_INTERVAL = 60.0
"""Seconds; shorter intervals are not proposed."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_MOST_EXPONENT = 600.0


@dataclass(frozen=True)
class Expected:
    """What a second of a training consists of, on average.

    Attributes:
        goodput: the part that counts.
        interruptions: per second.
        lost: the parts that do not, by cause.
    """

    goodput: float
    interruptions: float
    lost: dict[str, float]


def expected(setting: Setting) -> Expected:
    """Return what is expected of a *setting* that has a closed form (`Setting.has_closed_form`)."""
    rate, train = setting.rate, setting.interval_seconds
    stall, write = setting.checkpoint.stall_seconds, setting.checkpoint.write_seconds
    cycle = train + stall
    if rate == 0:
        return Expected(train / cycle, 0.0, {CHECKPOINT: stall / cycle})
    if rate * (cycle + write + setting.outage_seconds) > _MOST_EXPONENT:  # nothing is ever done
        return Expected(0.0, rate, {LOST_WORK: 1.0})

    outage = math.expm1(rate * setting.outage_seconds) / rate
    again = math.expm1(rate * (cycle + write)) * (1 / rate + outage)
    whole = -math.expm1(-rate * cycle) * (1 / rate + outage + again)
    up = whole / (1 + rate * outage)
    lost = {CHECKPOINT: stall / whole, LOST_WORK: max(0.0, up - cycle) / whole, RESTART: (whole - up) / whole}
    return Expected(train / whole, rate, lost)


def best_interval(setting: Setting) -> float:
    """Return the seconds of training between checkpoints that lose least, by the closed form.

    At least `LEAST_INTERVAL`, and what a checkpoint takes to become safe: no two are written at once.
    """
    always = Setting(
        setting.parts,
        setting.num_nodes,
        setting.checkpoint,
        1.0,
        restart_seconds=setting.restart_seconds,
        detection_seconds=setting.detection_seconds,
    )
    least = max(setting.checkpoint.write_seconds, LEAST_INTERVAL)
    if always.rate == 0:
        return math.inf
    low, high = ends = math.log(least), math.log(max(10.0 / always.rate, 10.0 * least))
    while high - low > 1e-4:  # goodput has one maximum over the interval
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if expected(always.at(math.exp(left))).goodput < expected(always.at(math.exp(right))).goodput:
            low = left
        else:
            high = right
    return max(map(math.exp, ((low + high) / 2, *ends)), key=lambda own: expected(always.at(own)).goodput)
