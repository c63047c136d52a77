"""Conditions of a cluster: slow ranks, links that change or fail, random pauses, other traffic.

    Jitter        every rank pauses at random before its steps (see `sim.scenario.rank_overhead`)
    Straggler     one rank is late, or slow
    LinkChange    a link carries more or less from some time on
    LinkFailure   a link carries nothing from some time on
    Background    other traffic

Ranks are places in the topology, whatever job runs there; times count from the start of the simulation.
What a condition needs to know of a topology is checked when it meets one (`sim.scenario.scenario`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np

from sim.errors import ConditionError
from sim.units import Int64Array, Quantity, parse_bandwidth, parse_time

Distribution: TypeAlias = Literal["uniform", "exponential"]
Factor: TypeAlias = int | float | Fraction
Link: TypeAlias = str | int
"""A name, as `sim.topology.topology.Topology.link_name` gives it, or a number."""


@dataclass(frozen=True)
class Jitter:
    """A random pause of every rank before every step that it takes part in.

    Attributes:
        mean: of the pause, ``"1us"`` or seconds.
        distribution: ``uniform`` from 0 to twice the mean, or ``exponential``.
        seed: of the generator; the same seed gives the same run.
    """

    mean: Quantity
    distribution: Distribution = "uniform"
    seed: int = 0
    mean_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_ps", parse_time(self.mean, "jitter"))
        if self.distribution not in get_args(Distribution):
            known = ", ".join(get_args(Distribution))
            raise ConditionError(
                f"jitter: unknown distribution {self.distribution!r}; expected one of {known}"
            )

    def draws(self, call: int, num_ranks: int) -> Iterator[Int64Array]:
        """Yield the pauses of all ranks, in picoseconds, in the *call*-th collective of a communicator."""
        generator = np.random.Generator(np.random.SFC64([self.seed, call]))
        while True:
            if self.distribution == "uniform":
                yield (generator.random(num_ranks) * (2 * self.mean_ps)).astype(np.int64)
            else:
                yield (generator.standard_exponential(num_ranks) * self.mean_ps).astype(np.int64)


@dataclass(frozen=True)
class Straggler:
    """A slow rank.

    Its overhead, reductions and computations take *factor* times as long, and of each of its own links it
    gets at most 1/factor, whether others use the link or not.

    Attributes:
        rank: its place.
        factor: 1 or more.
        delay: how much later than the others it begins whatever it is to do, ``"1ms"`` or seconds.
    """

    rank: int
    factor: Factor = 1
    delay: Quantity = 0
    exact_factor: Fraction = field(init=False, repr=False)
    delay_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact_factor", _fraction(self.factor, str(self), least=1))
        object.__setattr__(self, "delay_ps", parse_time(self.delay, "delay of a straggler"))


@dataclass(frozen=True)
class LinkChange:
    """From time *at* on, a link carries *factor* of the bandwidth that the topology gives it.

    Attributes:
        link: its name or number.
        at: when.
        factor: above 0; it may be above 1.
    """

    link: Link
    at: Quantity
    factor: Factor
    exact_factor: Fraction = field(init=False, repr=False)
    at_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact_factor", _fraction(self.factor, str(self), least=None))
        object.__setattr__(self, "at_ps", parse_time(self.at, "time of a link change"))


@dataclass(frozen=True)
class LinkFailure:
    """From time *at* on, a link carries nothing.

    Messages on the link or on their way to it are lost, and those sent later over it too, which ends
    the run with a `LinkFailedError`.  With *reroute*, what is left of each continues on another way
    (`Topology.without_links`) after the latency of that, and later messages take that way at once.

    Attributes:
        link: its name or number.
        at: when.
        reroute: whether messages find another way.
    """

    link: Link
    at: Quantity
    reroute: bool = False
    at_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_ps", parse_time(self.at, "time of a link failure"))


@dataclass(frozen=True)
class Background:
    """Other traffic: one flow that shares the links from *source* to *destination*.

    It has its fair share of the links (max-min), like a message, but never more than *bandwidth*.  So it
    runs at that rate where there is room for it, and gives way to others as they do to it.  Nothing
    waits for it, and where a link fails without another way, it ends.

    Attributes:
        source: the place that it comes from.
        destination: the place that it goes to.
        bandwidth: at most so much, ``"10Gbps"`` or bytes/s; None: as much as there is.
        nbytes: ends after so many bytes; None: never.
        start: when it takes to its links.
        stop: when it leaves them at the latest; None: never.
    """

    source: int
    destination: int
    bandwidth: Quantity | None = None
    nbytes: int | None = None
    start: Quantity = 0
    stop: Quantity | None = None
    rate: int | None = field(init=False, repr=False)
    start_ps: int = field(init=False, repr=False)
    stop_ps: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rate = None if self.bandwidth is None else parse_bandwidth(self.bandwidth, "bandwidth of background")
        stop = None if self.stop is None else parse_time(self.stop, "stop of background")
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "start_ps", parse_time(self.start, "start of background"))
        object.__setattr__(self, "stop_ps", stop)
        if self.rate is None and self.nbytes is None:
            raise ConditionError(f"{self}: expected a bandwidth, or nbytes, or both; got neither")
        if self.nbytes is not None and self.nbytes < 1:
            raise ConditionError(f"{self}: nbytes: expected at least 1, got {self.nbytes}")
        if self.stop_ps is not None and self.stop_ps <= self.start_ps:
            raise ConditionError(f"{self}: it stops at {self.stop}, no later than it starts, at {self.start}")


Condition: TypeAlias = Jitter | Straggler | LinkChange | LinkFailure | Background


def _fraction(factor: Factor, what: str, least: int | None) -> Fraction:
    """Return *factor* exactly as it is written; at least *least*, or above 0.

    Raises:
        ConditionError: it is none such; names *what*.
    """
    expected = "a number above 0" if least is None else f"a number of at least {least}"
    try:
        exact = Fraction(str(factor))
    except (ValueError, ZeroDivisionError):
        exact = Fraction(-1)
    if exact <= 0 or (least is not None and exact < least):
        raise ConditionError(f"{what}: factor: expected {expected}, got {factor!r}")
    return exact
