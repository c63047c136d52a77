"""Losses of a training's time to failures: expected, in closed form, and of one run, by its events.

The closed form takes failures that have no memory and may come at any time.  After a failure, at rate λ, an
outage of ρ seconds follows, which a further failure begins anew, so that it takes r = (exp(λρ) - 1)/λ on
average.  Training goes on from the last checkpoint that is safe.  Between checkpoints are τ seconds of
training and a stall of δ; a checkpoint is safe w seconds after its stall.  From one that becomes safe to the
next, with L = τ + δ, it takes

    A = (1 - exp(-λL)) (1/λ + r + B),   B = (exp(λ(L + w)) - 1) (1/λ + r)

of which τ counts; with w = 0 that is Daly's exp(λρ) (exp(λL) - 1)/λ, whose first order gives Young's interval
sqrt(2δ/λ).

A run, drawn from a seed, says what the closed form cannot:

    train --interval--> stall --> train ...          a checkpoint is safe some seconds after its stall
      failure, at any time --> outage (--> wait for a node) --> train from the last safe checkpoint

Nodes that become slow have no memory either.  A node that has failed is out for the time of its repair;
where none stands by, ranks wait for the first that is back, or, if they shrink, go on without it, more slowly
by its share, until the checkpoint after it is back.

Sources: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22
(2006), equation 13; J. W. Young, CACM 17 (1974).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.planning.goodput.policy import HOUR, Setting

CAUSES = ("checkpoints", "lost work", "restarts", "waiting for nodes", "degraded nodes", "fewer nodes")
CHECKPOINT, LOST_WORK, RESTART, WAITING, DEGRADED, FEWER = CAUSES
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
    least = max(setting.checkpoint.write_seconds, LEAST_INTERVAL)
    if setting.rate == 0:
        return math.inf
    low, high = ends = math.log(least), math.log(max(10.0 / setting.rate, 10.0 * least))
    while high - low > 1e-4:  # goodput has one maximum over the interval
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if expected(setting.at(math.exp(left))).goodput < expected(setting.at(math.exp(right))).goodput:
            low = left
        else:
            high = right
    return max(map(math.exp, ((low + high) / 2, *ends)), key=lambda own: expected(setting.at(own)).goodput)


USEFUL = "useful"
_NEVER = math.inf


@dataclass
class Run:
    """A run of *setting* for so many seconds, with the failures that *seed* draws.

    Attributes:
        setting: what is run.
        seconds: how long.
        seed: of the failures.
        spent: seconds by cause; `USEFUL` is what counts.
        interruptions: failures, by part.
    """

    setting: Setting
    seconds: float
    seed: int
    spent: dict[str, float] = field(default_factory=dict)
    interruptions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._now = 0.0
        self._away: list[float] = []  # when nodes are back from repair
        self._slow: list[float] = []  # when slow nodes are no longer
        self._next_failure = self._draw(self.setting.rate)
        self._next_slow = self._draw(self._slow_rate())
        self._since_safe: dict[str, float] = {}
        self._unsafe: tuple[float, dict[str, float]] | None = None  # when it will be safe, what it holds
        self._run()

    @property
    def goodput(self) -> float:
        """The part of the time that counts."""
        return self.spent.get(USEFUL, 0.0) / self.seconds

    def _run(self) -> None:
        while self._now < self.seconds:
            self._skip()
            if not (self._train() and self._stall()):
                self._recover()
        for held in self._not_safe():
            for cause, spent in held.items():
                self._spend(cause, spent)

    def _skip(self) -> None:
        """Go through the intervals in which nothing happens but their checkpoints, all but the last two."""
        checkpoint, train = self.setting.checkpoint, self.setting.interval_seconds
        if checkpoint.write_seconds > train:
            return
        speed, share = self._speed()
        passed = train / speed
        ahead = min(self._next_failure, self._next_change(), self.seconds, self._next_return()) - self._now
        count = int(ahead // (passed + checkpoint.stall_seconds)) - 2
        if count > 0:
            self._spend(USEFUL, count * train)
            self._spend(FEWER, count * passed * (1 - share))
            self._spend(DEGRADED, count * passed * (share - speed))
            self._spend(CHECKPOINT, count * checkpoint.stall_seconds)
            self._advance(self._now + count * (passed + checkpoint.stall_seconds))

    def _train(self) -> bool:
        """Train up to the next checkpoint; return whether no failure came."""
        left = self.setting.interval_seconds
        while left > 0:
            speed, share = self._speed()
            done = self._now + left / speed
            until = min(done, self.seconds, self._next_change())
            is_failure = self._next_failure < until
            until = min(until, self._next_failure)
            passed = until - self._now
            self._advance(until)
            left = 0.0 if until == done else left - passed * speed
            self._hold(USEFUL, passed * speed)
            self._hold(FEWER, passed * (1 - share))
            self._hold(DEGRADED, passed * (share - speed))
            if is_failure:
                return False
            if self._now >= self.seconds:
                return True
        return True

    def _stall(self) -> bool:
        """Take a checkpoint; return whether no failure came."""
        if self._unsafe is not None and not self._pass(self._unsafe[0] - self._now, CHECKPOINT, self._hold):
            return False  # two are not written at once
        if self._now >= self.seconds:
            return True
        if not self._pass(self.setting.checkpoint.stall_seconds, CHECKPOINT, self._hold):
            return False
        self._unsafe = (self._now + self.setting.checkpoint.write_seconds, self._since_safe)
        self._since_safe = {}
        if self.setting.recovery == "shrink" and self._returned():
            # They join at a checkpoint, which costs a restart and no work.
            return self._pass(self.setting.restart_seconds, RESTART, self._spend)
        return True

    def _recover(self) -> None:
        """Lose what is not safe, and wait until training can go on."""
        while True:
            self._fail()
            setting = self.setting
            if not self._pass(setting.outage_seconds, RESTART, self._spend):
                continue
            if setting.recovery == "shrink" or setting.spares is None or len(self._away) <= setting.spares:
                return
            first_back = sorted(self._away)[-setting.spares - 1]
            if self._pass(first_back - self._now, WAITING, self._spend):
                return

    def _fail(self) -> None:
        """Draw which part has failed, and lose what is not safe."""
        parts = self.setting.parts
        (part,) = self._random.choices(parts, [part.rate for part in parts])
        self.interruptions[part.name] = self.interruptions.get(part.name, 0) + 1
        if part.is_replaced:
            heapq.heappush(self._away, self._now + self.setting.repair_seconds)
        self._spend(LOST_WORK, math.fsum(spent for held in self._not_safe() for spent in held.values()))
        self._since_safe, self._unsafe = {}, None
        self._next_failure = self._now + self._draw(self.setting.rate)

    def _pass(self, seconds: float, cause: str, note: Callable[[str, float], None]) -> bool:
        """Let *seconds* without training pass, and *note* their *cause*; return whether no failure came."""
        until = min(self._now + max(0.0, seconds), self.seconds)
        is_failure = self._next_failure < until
        until = min(until, self._next_failure)
        note(cause, until - self._now)
        self._advance(until)
        return not is_failure

    def _advance(self, until: float) -> None:
        """Go on to *until*: checkpoints become safe, nodes become slow or are no longer."""
        self._now = until
        if self._unsafe is not None and self._unsafe[0] <= until:
            for cause, spent in self._unsafe[1].items():
                self._spend(cause, spent)
            self._unsafe = None
        if self.setting.recovery != "shrink":
            self._returned()
        while self._next_slow <= until:
            assert self.setting.degraded is not None
            heapq.heappush(self._slow, self._next_slow + self.setting.degraded.seconds)
            self._next_slow += self._draw(self._slow_rate())
        while self._slow and self._slow[0] <= until:
            heapq.heappop(self._slow)

    def _returned(self) -> int:
        """Take back the nodes whose repair is over; return how many."""
        count = 0
        while self._away and self._away[0] <= self._now:
            heapq.heappop(self._away)
            count += 1
        return count

    def _speed(self) -> tuple[float, float]:
        """Return how fast training is, and how fast it would be if no node were slow."""
        share = 1.0
        if self.setting.recovery == "shrink":
            missing = max(0, len(self._away) - (self.setting.spares or 0))
            share = max(1, self.setting.num_nodes - missing) / self.setting.num_nodes
        slowdown = self.setting.degraded.slowdown if self._slow and self.setting.degraded else 1.0
        return share / slowdown, share

    def _next_change(self) -> float:
        """Return when nodes become slow, or one is no longer."""
        return min(self._next_slow, self._slow[0] if self._slow else _NEVER)

    def _next_return(self) -> float:
        """Return when a node is back that training goes on without."""
        return self._away[0] if self.setting.recovery == "shrink" and self._away else _NEVER

    def _slow_rate(self) -> float:
        degraded = self.setting.degraded
        return self.setting.num_nodes / (degraded.mtbf_hours * HOUR) if degraded else 0.0

    def _draw(self, rate: float) -> float:
        return self._random.expovariate(rate) if rate > 0 else _NEVER

    def _not_safe(self) -> list[dict[str, float]]:
        """Return what a failure would lose: seconds since the last checkpoint, and of one not safe yet."""
        return [self._since_safe] if self._unsafe is None else [self._since_safe, self._unsafe[1]]

    def _hold(self, cause: str, seconds: float) -> None:
        if seconds:
            self._since_safe[cause] = self._since_safe.get(cause, 0.0) + seconds

    def _spend(self, cause: str, seconds: float) -> None:
        if seconds:
            self.spent[cause] = self.spent.get(cause, 0.0) + seconds
