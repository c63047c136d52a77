"""Quantities of a calibration: constants with their intervals, of links and of software."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict

LinkClass: TypeAlias = Literal["inside_node", "between_nodes", "trunk", "memory"]
"""Of a link: between ranks of a node, between a node and its switch, between switches; of a host's memory."""

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
"""No unknown fields and no numbers without bounds where such a thing is read."""

_PS = 1e12
MOST_REDUCTION = 1e12
"""Bytes/s from which on reducing counts as free."""


@dataclass(frozen=True)
class Estimate:
    """A constant and the interval in which it lies with 95 % confidence (bootstrap)."""

    __pydantic_config__ = STRICT

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """Return a constant that is known, not found."""
        return cls(value, value, value)


@dataclass(frozen=True)
class LinkShares:
    """What flows get of the links of a class.

    Attributes:
        rate: bytes/s of a link and direction, of which the shares are parts.
        latency: seconds of a whole path of this class, without software.
        one_way: the part of *rate* that one flow, two flows, … get together while no flow goes the other
            way; the last entry goes on.
        both_ways: the same while flows go the other way too.
    """

    __pydantic_config__ = STRICT

    rate: Estimate
    latency: Estimate
    one_way: tuple[Estimate, ...]
    both_ways: tuple[Estimate, ...]


@dataclass(frozen=True)
class SoftwareCosts:
    """What ranks add to the time of the network.

    Attributes:
        overhead: seconds of each message, on either side, before it starts.
        arrival_overhead: seconds from the arrival of a message's last byte until its receiver knows.
        reduction_bandwidth: bytes/s at which a rank reduces; None: nothing was found to be lost by it.
        call_overhead: seconds of a call, before its first step; None: not looked for.
        copy_bandwidth: bytes/s at which a rank copies around a program; None: not looked for, or at no cost.
    """

    __pydantic_config__ = STRICT

    overhead: Estimate
    arrival_overhead: Estimate
    reduction_bandwidth: Estimate | None = None
    call_overhead: Estimate | None = None
    copy_bandwidth: Estimate | None = None

    def options(self) -> dict[str, Any]:
        """Return the same as keyword arguments of `collectives.simulate`."""
        reduction, copying = self.reduction_bandwidth, self.copy_bandwidth
        options: dict[str, Any] = {
            "overhead": _time(self.overhead),
            "arrival_overhead": _time(self.arrival_overhead),
            "reduction_bandwidth": None if reduction is None else max(1, round(reduction.value)),
        }
        if self.call_overhead is not None:
            options["call_overhead"] = _time(self.call_overhead)
        if copying is not None:
            options["copy_bandwidth"] = max(1, round(copying.value))
        return options


def _time(estimate: Estimate) -> str:
    return f"{round(estimate.value * _PS)}ps"
