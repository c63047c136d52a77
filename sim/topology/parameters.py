"""What the constructors of networks check and convert."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from sim.errors import TopologyError
from sim.units import Int64Array


def count(value: int, what: str, least: int = 1) -> int:
    """Return *value* as an int.

    Raises:
        TopologyError: it is not a whole number of at least *least*; names *what*.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise TopologyError(f"{what}: expected a whole number of at least {least}, got {value!r}")
    return int(value)


def ecmp_seed(routing: str, otherwise: str, seed: int) -> int | None:
    """Return the seed of the hash that *routing* ``ecmp`` asks for, or None for *otherwise*.

    Raises:
        TopologyError: another routing than these two, or a seed that is not a whole number.
    """
    if routing not in ("ecmp", otherwise):
        raise TopologyError(f"routing: expected {otherwise!r} or 'ecmp', got {routing!r}")
    return count(seed, "seed", least=0) if routing == "ecmp" else None


def thinned(bandwidth: int, oversubscription: float | Fraction) -> int:
    """Return *bandwidth* divided by *oversubscription*, rounded down.

    Raises:
        TopologyError: the divisor is not a positive number, or leaves nothing.
    """
    try:
        rate = int(bandwidth / Fraction(str(oversubscription)))
    except (ValueError, ZeroDivisionError):
        rate = 0
    if not 0 < rate < 2**63:
        raise TopologyError(
            f"oversubscription: expected a number such as 4 that leaves some of {bandwidth} bytes/s, "
            f"got {oversubscription!r}"
        )
    return rate


def link_arrays(kinds: Iterable[tuple[int, int, int]]) -> tuple[Int64Array, Int64Array]:
    """Return bandwidths and latencies of links given as (count, bandwidth, latency)."""
    counts, bandwidth, latency = (np.array(column, dtype=np.int64) for column in zip(*kinds, strict=True))
    return np.repeat(bandwidth, counts), np.repeat(latency, counts)
