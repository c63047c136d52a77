"""Gains: what ten per cent more of each resource would buy.

Of each resource the step is predicted anew with a tenth more of it and everything else the same: bandwidth of
each group of links, latencies (each a tenth shorter), computation (a tenth faster) and the size of buckets (a
tenth more or less, whichever helps).  That is the derivative, over a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from testbed.planning.alteration import AS_IT_IS, Alteration
from testbed.planning.answers.causes import CLOSED_FORM, Case, Found
from testbed.planning.answers.figures import seconds_of
from testbed.planning.resources import ALL_LINKS

if TYPE_CHECKING:
    from testbed.planning.row import Row

MORE = Fraction(11, 10)
LESS = 1 / MORE
COMPUTE, LATENCY, BUCKETS = "compute", "latency", "bucket_cap_mb"


@dataclass(frozen=True)
class Gain:
    """What a tenth more of a resource buys.

    Attributes:
        resource: a group of links, ``latency``, ``compute`` or ``bucket_cap_mb``.
        part: of the step's time that it saves; None where that is not known.
        why_not: why it is not known; else empty.
    """

    resource: str
    part: float | None
    why_not: str = ""


def asked(row: Row, groups: Sequence[str]) -> list[tuple[str, Case]]:
    """Return the resources of *row*, each with what has to be predicted for it; buckets come twice.

    Args:
        row: of a plan.
        groups: of links, see `testbed.planning.resources`.  A closed form knows only all of them together.
    """
    point = row.settled
    if point.ranks == 1:
        groups = ()
    elif CLOSED_FORM in row.method:
        groups = (ALL_LINKS,)
    found: list[tuple[str, Case]] = [
        (group, (point, Alteration(bandwidth=((group, MORE),)))) for group in groups
    ]
    if groups:
        found.append((LATENCY, (point, Alteration(latency=LESS))))
    if point.kind == "step":
        found.append((COMPUTE, (point, Alteration(compute=LESS))))
    if groups and point.kind == "step":
        for factor in (MORE, LESS):
            other = replace(point, bucket_cap_mb=float(point.bucket_cap_mb * factor))
            found.append((BUCKETS, (other, AS_IT_IS)))
    return found


def gains(row: Row, groups: Sequence[str], found: Found) -> list[Gain]:
    """Return what more of each resource buys, most first; what is not known comes last.

    Args:
        row: of a plan.
        groups: of links.
        found: what its cases (`asked`) take, and its point as it is.
    """
    usual = found.get((row.settled, AS_IT_IS), row)
    before = seconds_of(row) if usual.seconds is None else usual.seconds
    best: dict[str, Gain] = {}
    for resource, case in asked(row, groups):
        after = found[case]
        if after.seconds is None:
            best.setdefault(resource, Gain(resource, None, after.problem))
            continue
        part = 1 - after.seconds / before if before else 0.0
        known = best.get(resource)
        if known is None or known.part is None or part > known.part:
            best[resource] = Gain(resource, part)
    return sorted(best.values(), key=lambda own: (own.part is None, -(own.part or 0.0)))
