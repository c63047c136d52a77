"""Result of a live calibration: the constants that a fit has found, with intervals and how well they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from testbed.calibration.confidence import Errors
from testbed.calibration.live.calibration import (
    MOST_REDUCTION,
    CachedBuffers,
    Calibration,
    Estimate,
    Fit,
    LinkClass,
    LinkShares,
    Origin,
    SoftwareCosts,
)
from testbed.calibration.live.constants import cache_speedups, software_of, ways_of
from testbed.calibration.live.fit import Fitted, fit
from testbed.calibration.live.plan import caches
from testbed.output.folder import versions
from testbed.output.table import grouped

if TYPE_CHECKING:
    from testbed.calibration.live.measurement import Measured

_SMALL = 256
"""Bytes below which buffers are of one element for each rank."""


def calibration_of(
    measured: Measured,
    *,
    name: str = "calibrated",
    network: str = "a network of unknown rates",
    rates: Mapping[LinkClass, float] | None = None,
) -> tuple[Calibration, Fitted]:
    """Return the calibration that a measurement comes to, and the fit behind it.

    Args:
        measured: by `testbed.calibration.live.measurement.measure`.
        name: for people.
        network: what was measured, in words.
        rates: bytes/s of links whose rates are known; of others the most that flows were found to get.

    Raises:
        NotSupportedError: too little was measured.
    """
    fitted = _fitted(measured, rates)
    found = {
        constant: Estimate(_digits(value), _digits(low), _digits(high))
        for constant, value, low, high in zip(
            fitted.names, fitted.values, fitted.low, fitted.high, strict=True
        )
    }
    if "trunk latency" in found:
        found["trunk latency"] = _sum(found["between_nodes latency"], found["trunk latency"])
    sizes = [row.pattern.nbytes for row in measured.rows]
    origin = Origin(
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        transport="shm" if measured.wiring.in_memory else "gloo",
        num_ranks=measured.wiring.num_ranks,
        ranks_per_node=measured.wiring.ranks_per_node,
        network=network,
        num_rows=len(measured.rows),
        smallest=min(sizes),
        largest=max(sizes),
        seconds=round(measured.seconds, 1),
        versions=versions(),
        ranks_per_rack=measured.wiring.ranks_per_rack,
    )
    cache = fitted.wiring.cache
    calibration = Calibration(
        name,
        {kind: _shares(found, kind, (rates or {}).get(kind)) for kind in measured.wiring.classes},
        _costs(found, "programs"),
        _fits(fitted),
        origin,
        _costs(found, "native") if "native" in software_of(measured.wiring) else None,
        CachedBuffers(cache, *map(_digits, cache_speedups(fitted.found))) if cache else None,
    )
    return calibration, fitted


def _fitted(measured: Measured, rates: Mapping[LinkClass, float] | None) -> Fitted:
    """Return the fit; of a host, that with the size of caches that answers what was measured best."""
    wiring = measured.wiring
    tried = [wiring]
    if wiring.in_memory:
        patterns = (row.pattern for row in measured.rows)
        tried += [replace(wiring, cache=own) for own in caches(wiring, patterns)]
    return min((fit(measured.rows, own, rates) for own in tried), key=lambda own: own.residual)


def _digits(value: float) -> float:
    """Return *value* to as many digits as mean anything."""
    return float(f"{value:.5g}")


def _sum(one: Estimate, other: Estimate) -> Estimate:
    """Return the sum of two constants; its interval is at most this wide."""
    return Estimate(*(_digits(sum(ends)) for ends in zip(astuple(one), astuple(other), strict=True)))


def _shares(found: Mapping[str, Estimate], kind: LinkClass, known: float | None) -> LinkShares:
    ways = ways_of(found, kind)
    least = min(ways[0], key=lambda own: own.value)
    rate = _inverse(least, 1.0) if known is None else Estimate.exactly(known)
    if kind == "memory":
        return LinkShares(rate, Estimate.exactly(0.0), (Estimate.exactly(1.0),), (Estimate.exactly(1.0),))
    one_way, both_ways = (tuple(_at_most_whole(_inverse(own, rate.value)) for own in each) for each in ways)
    return LinkShares(rate, found[f"{kind} latency"], one_way, both_ways)


def _inverse(seconds: Estimate, rate: float) -> Estimate:
    """Return the part of *rate* at which a byte takes so many *seconds*."""
    value, low, high = (_digits(1 / own / rate) for own in (seconds.value, seconds.high, seconds.low))
    return Estimate(value, low, high)


def _at_most_whole(part: Estimate) -> Estimate:
    """Return *part* of a link; where a link was never full, more than the whole may come out."""
    return replace(part, value=min(1.0, part.value), low=min(1.0, part.low))


def _costs(found: Mapping[str, Estimate], by: str) -> SoftwareCosts:
    return SoftwareCosts(
        found[f"{by} overhead"],
        found[f"{by} arrival"],
        _bandwidth(found.get(f"{by} reduced")),
        found.get(f"{by} call"),
        _bandwidth(found.get(f"{by} copied")),
    )


def _bandwidth(seconds: Estimate | None) -> Estimate | None:
    """Return bytes/s at which a byte takes *seconds*; None where it takes no time that was found."""
    if seconds is None or seconds.value * MOST_REDUCTION < 1:
        return None
    return _inverse(Estimate(*(max(own, 1 / MOST_REDUCTION) for own in astuple(seconds))), 1.0)


def _fits(fitted: Fitted) -> tuple[Fit, ...]:
    """Return how well the model holds, by sizes that are alike up to rounding."""
    by_size = grouped(fitted.compared, lambda own: size_class(own.row.pattern.nbytes))
    found = []
    for nbytes, rows in sorted(by_size.items()):
        errors = Errors.of(rows)
        assert errors is not None
        spread = median(own.row.spread for own in rows)
        figures = (errors.median, abs(errors.worst), spread)
        found.append(Fit(nbytes, errors.num_rows, *(round(own, 4) for own in figures)))
    return tuple(found)


def size_class(nbytes: int) -> int:
    """Return the power of two nearest to *nbytes*; one element for each rank is about 4 bytes."""
    return 4 if nbytes < _SMALL else 1 << round(math.log2(nbytes))
