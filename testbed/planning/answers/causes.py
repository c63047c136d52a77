"""Causes of lost efficiency, and gains: what a step would save without a cause, or with more of a resource.

A step is longer than on one rank alone.  The causes are removed one after another, in this order, and the
step is predicted anew each time, with the same algorithm:

    late ranks            the slowest rank computes as long as the mean
    copies                gradients need not be copied into buckets and back
    slowed computation    collectives take nothing from the computation beside them
    contention            no rank's messages meet those of another on a link, nor share it both ways
    bandwidth             links carry a million times as much
    latency               what is left: latencies of links and messages, launches of collectives; of a script
                          links without latency, and what is left is of its host and of waiting

What the removal of a cause saves is its share.  The shares add up to what is lost, exactly, whatever they
are.  Their order matters where causes stand in for one another: what contention is, is counted before
bandwidth, so bandwidth is what a rank would wait for its own bytes alone; and only what computation cannot
hide counts at all.  A share may be negative where less of a cause makes something else later.

For gains the step is predicted anew with a tenth more of a resource and everything else the same: bandwidth
of each group of links, latencies (each a tenth shorter), computation (a tenth faster) and the size of buckets
(a tenth more or less, whichever helps).  That is the derivative, over a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from testbed.planning.alteration import ALL_LINKS, AS_IT_IS, UNLIMITED, Alteration
from testbed.planning.answers.figures import seconds_of
from testbed.planning.points import Point
from testbed.planning.row import Row

CLOSED_FORM = "closed form"

Case: TypeAlias = "tuple[Point, Alteration]"
"""A point, and what is otherwise in it."""
Found: TypeAlias = "Mapping[Case, Row]"
"""What each case takes."""

LATENCY = "latency"
REST = "host and waits"
"""What is left of a script's step: its host's launches, and ranks that wait for each other's computation."""

_COUNTED = (("late ranks", "late"), ("copies", "copies"), ("slowed computation", "contention"))

MORE = Fraction(11, 10)
LESS = 1 / MORE
COMPUTE, BUCKETS = "compute", "bucket_cap_mb"


@dataclass(frozen=True)
class Cause:
    """A cause of lost time, and its share.

    Attributes:
        name: of the cause.
        seconds: that its removal saves, after that of the causes before it; None where that is not known,
            and it is counted with the next one.
        why_not: why it is not known; else empty.
    """

    name: str
    seconds: float | None
    why_not: str = ""


@dataclass(frozen=True)
class LostTime:
    """What a row loses, and to what.

    Attributes:
        seconds: of a step.
        alone_seconds: of the step of one rank alone, of a collective nothing; None where it is not known.
        causes: in the order of their removal; they add up to the difference of the two.
    """

    seconds: float
    alone_seconds: float | None
    causes: tuple[Cause, ...]

    @property
    def lost_seconds(self) -> float | None:
        """Seconds that the step takes longer than that of one rank alone; None where that is not known."""
        return None if self.alone_seconds is None else self.seconds - self.alone_seconds

    def share(self, cause: Cause) -> float | None:
        """Return the part of the step that is lost to *cause*."""
        if cause.seconds is None:
            return None
        return cause.seconds / self.seconds if self.seconds else 0.0


def removals(row: Row) -> list[tuple[str, Alteration]]:
    """Return the causes of *row* but for latency, each with what is otherwise without it and those before."""
    counted = {term.partition(":")[0] for term in row.inefficiencies}
    now, found = AS_IT_IS, []
    for name, term in _COUNTED:
        if term in counted:
            now = replace(now, without=(*now.without, term))
            found.append((name, now))
    now = replace(now, unshared=True)
    found.append(("contention", now))
    if CLOSED_FORM in row.method:
        now = replace(now, unshared=False)
    now = replace(now, bandwidth=((ALL_LINKS, UNLIMITED),))
    found.append(("bandwidth", now))
    if row.point.kind == "script":
        found.append((LATENCY, replace(now, latency=Fraction(0))))
    return found


def cases(row: Row) -> list[Case]:
    """Return what has to be predicted to know the causes of *row*; where they cannot be known, itself."""
    if row.point.ranks == 1 or not _has_causes(row):
        return [(row.settled, AS_IT_IS)]
    altered = [own for name, own in removals(row) if name != "contention" or CLOSED_FORM not in row.method]
    return [(row.settled, own) for own in (AS_IT_IS, *altered)]


def lost_time(row: Row, found: Found) -> LostTime:
    """Return what *row* loses, and to what.

    Args:
        row: of a plan.
        found: what its `cases` take.
    """
    now, alone = seconds_of(row), row.compute_seconds or 0.0
    if not _has_causes(row):
        return LostTime(now, None, ())
    if row.point.ranks == 1:
        return LostTime(now, alone, ())
    causes: list[Cause] = []
    for name, altered in removals(row):
        after = found.get((row.settled, altered))
        if after is None or after.seconds is None:
            why = "a closed form knows of no links" if after is None else after.problem
            causes.append(Cause(name, None, why))
        else:
            causes.append(Cause(name, now - after.seconds))
            now = after.seconds
    rest = REST if row.point.kind == "script" else LATENCY
    return LostTime(seconds_of(row), alone, (*causes, Cause(rest, now - alone)))


def _has_causes(row: Row) -> bool:
    """Return whether it is known what a rank alone takes."""
    return row.point.kind == "collective" or row.compute_seconds is not None


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


def gain_cases(row: Row, groups: Sequence[str]) -> list[tuple[str, Case]]:
    """Return the resources of *row*, each with what has to be predicted for it; buckets come twice.

    Args:
        row: of a plan.
        groups: of links, see `testbed.planning.alteration`.  A closed form knows only all of them together.
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
        found: what its cases (`gain_cases`) take, and its point as it is.
    """
    usual = found.get((row.settled, AS_IT_IS), row)
    before = seconds_of(row) if usual.seconds is None else usual.seconds
    best: dict[str, Gain] = {}
    for resource, case in gain_cases(row, groups):
        after = found[case]
        if after.seconds is None:
            best.setdefault(resource, Gain(resource, None, after.problem))
            continue
        part = 1 - after.seconds / before if before else 0.0
        known = best.get(resource)
        if known is None or known.part is None or part > known.part:
            best[resource] = Gain(resource, part)
    return sorted(best.values(), key=lambda own: (own.part is None, -(own.part or 0.0)))
