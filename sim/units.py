"""Quantities: inside whole picoseconds, bytes and bytes per second; at the edge what people write.

Text and numbers are read as exact decimals, never through binary floats, so ``"2us"``, ``2e-6``
and 2,000,000 picoseconds are the same time.  `transfer_ps` is the one place where a duration
that does not come out in whole picoseconds is rounded, and it rounds up.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TypeAlias, TypeGuard, overload

import numpy as np
import numpy.typing as npt

from sim.errors import TopologyError, UnitError

SECOND = 10**12
"""One second, in picoseconds."""
MOST_SPEEDUP = 1000
"""Times as fast that memory near processors may be as memory far from them."""

Quantity: TypeAlias = str | int | float
Int64Array: TypeAlias = npt.NDArray[np.int64]

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIMES = {"": SECOND, "s": SECOND, "ms": 10**9, "us": 10**6, "µs": 10**6, "μs": 10**6, "ns": 10**3, "ps": 1}
_BITS = {"b/s", "bps", "bit/s"}
_BYTES = {"B/s", "Bps"}
_TEXT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµμ/]*)\s*")
_LONGEST = 100
"""Signs of a quantity that is read; what is longer is none that anybody writes."""
_INT64_MAX = 2**63 - 1
MAX_PS = 2**62
"""Times up to which arrays of 64 bits are trusted with sums of them."""

_HALF = 10**6  # SECOND = _HALF * _HALF: `transfer_ps` multiplies by each in turn, to stay in 64 bits


def parse_bandwidth(value: Quantity, what: str = "bandwidth") -> int:
    """Return *value* in bytes per second.

    Text has a unit: ``"100Gbps"`` or ``"100Gb/s"`` are decimal bits, ``"300GB/s"`` decimal bytes,
    ``"300GiB/s"`` binary bytes.  A bare number is bytes per second.  A fraction of a byte per
    second is dropped.

    Raises:
        UnitError: not a bandwidth, less than one byte per second, or beyond 63 bits; names *what*.
    """
    number, unit = _split(value, what, 'a bandwidth such as "100Gbps", "300GB/s" or 12.5e9 (bytes/s)')
    if match := re.fullmatch(r"([kKmMgGtT]?)(i?)(\D{3,5})", unit):
        prefix, binary, per_second = match.groups()
        factor = (_BINARY if binary else _DECIMAL)[prefix.lower()]
        if per_second in _BYTES:
            number *= factor
        elif per_second in _BITS:
            number *= Fraction(factor, 8)
        else:
            raise _unreadable(value, what, 'a unit such as "Gbps" (bits) or "GB/s" (bytes)')
    elif unit:
        raise _unreadable(value, what, 'a unit such as "Gbps" (bits) or "GB/s" (bytes)')
    if number < 1:
        raise UnitError(f"{what}: {_spell(value)} is not positive; expected at least one byte per second")
    return _in_range(math.floor(number), value, what)


def parse_time(value: Quantity, what: str = "time") -> int:
    """Return *value* in picoseconds.

    Text may have a unit, ``"2us"``, ``"500ns"``, ``"1.5ms"``; a bare number is seconds.  A
    fraction of a picosecond counts as a whole one.

    Raises:
        UnitError: not a time, negative, or beyond 63 bits (106 days); names *what*.
    """
    number, unit = _split(value, what, 'a time such as "2us", "1.5ms" or 2e-6 (seconds)')
    if unit not in _TIMES:
        raise _unreadable(value, what, "one of the units s, ms, us, ns, ps")
    if number < 0:
        raise UnitError(f"{what}: {_spell(value)} is negative; expected zero or more")
    return _in_range(math.ceil(number * _TIMES[unit]), value, what)


def parse_size(value: Quantity, what: str = "size") -> int:
    """Return *value* in bytes.

    Prefixes are powers of 1024, as nccl-tests has them, with or without ``B`` or ``iB``:
    ``"4K"``, ``"4KB"`` and ``"4KiB"`` are 4096 and ``"1GB"`` is 2**30.

    Raises:
        UnitError: not a size, negative, not a whole number of bytes, or beyond 63 bits; names *what*.
    """
    number, unit = _split(value, what, 'a size such as "4K", "25MiB" or 4096 (bytes)')
    match = re.fullmatch(r"([kmgt]?)(?:i?b)?", unit.lower())
    if match is None or unit.lower() == "ib":
        raise _unreadable(value, what, "one of the units B, K, M, G, T (powers of 1024)")
    number *= _BINARY[match[1]]
    if number < 0:
        raise UnitError(f"{what}: {_spell(value)} is negative; expected zero or more")
    if number.denominator != 1:
        raise UnitError(f"{what}: {_spell(value)} is not a whole number of bytes")
    return _in_range(number.numerator, value, what)


def parse_rate(value: Quantity, what: str = "rate") -> int:
    """Return *value* in operations per second.

    Text may have a decimal unit: ``"989.4TFLOP/s"``, ``"768GFLOP/s"``; a bare number is operations per
    second.  A fraction of an operation per second is dropped.

    Raises:
        UnitError: not a rate, less than one operation per second, or beyond 63 bits; names *what*.
    """
    expected = 'a rate such as "989.4TFLOP/s" or 19.5e12 (operations/s)'
    number, unit = _split(value, what, expected)
    match = re.fullmatch(r"(?:([kmgt]?)flop/s)?", unit.lower())
    if match is None:
        raise _unreadable(value, what, expected)
    number *= _DECIMAL[match[1] or ""]
    if number < 1:
        raise UnitError(
            f"{what}: {_spell(value)} is not positive; expected at least one operation per second"
        )
    return _in_range(math.floor(number), value, what)


def parse_count(value: object, what: str, least: int = 1) -> int:
    """Return *value*, a number of things in a network, as an int.

    Raises:
        TopologyError: it is not a whole number of at least *least*; names *what*.
    """
    if not is_whole(value) or value < least:
        raise TopologyError(f"{what}: expected a whole number of at least {least}, got {_spell(value)}")
    return int(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether *value* is a whole number, of Python or NumPy, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@overload
def transfer_ps(nbytes: int, bandwidth: int) -> int: ...
@overload
def transfer_ps(nbytes: Int64Array, bandwidth: int | Int64Array) -> Int64Array: ...
@overload
def transfer_ps(nbytes: int, bandwidth: Int64Array) -> Int64Array: ...
def transfer_ps(nbytes: int | Int64Array, bandwidth: int | Int64Array) -> int | Int64Array:
    """Return how many picoseconds *nbytes* take at *bandwidth* bytes/s, exactly, rounded up.

    Takes Python ints of any size, or int64 arrays (broadcast together), and gives the same for
    both.

    Raises:
        UnitError: an array holds a size, bandwidth or duration that the 64-bit way cannot do
            exactly: 9.2 TB, 9.2 TB/s, 106 days.
    """
    if isinstance(nbytes, int) and isinstance(bandwidth, int):
        return -(-nbytes * SECOND // bandwidth)
    limit = _INT64_MAX // _HALF
    for name, values in (("nbytes", nbytes), ("bandwidth", bandwidth)):
        if np.any(np.greater(values, limit)):
            raise UnitError(f"{name}: {np.max(values)} is too large; arrays hold at most {limit}")
    scaled: Int64Array = np.multiply(nbytes, _HALF, dtype=np.int64)
    whole, rest = scaled // bandwidth, scaled % bandwidth
    if np.any(whole >= limit):
        raise UnitError(f"nbytes: a transfer takes more than {limit // _HALF} s, too long for an array")
    duration: Int64Array = whole * _HALF - (-rest * _HALF // bandwidth)
    return duration


def to_seconds(duration_ps: int) -> float:
    """Return a duration in seconds, as the nearest float."""
    return duration_ps / SECOND


def format_size(nbytes: int) -> str:
    """Return *nbytes* for people, in powers of 1024: ``25 MiB``."""
    return _scaled(nbytes, [(2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])


def format_time(duration_ps: int) -> str:
    """Return a duration in picoseconds for people: ``1.5 ms``."""
    return _scaled(duration_ps, [(SECOND, "s"), (10**9, "ms"), (10**6, "us"), (10**3, "ns"), (1, "ps")])


def format_bandwidth(bandwidth: int) -> str:
    """Return bytes per second for people, in decimal units: ``12.5 GB/s``."""
    return _scaled(
        bandwidth, [(10**12, "TB/s"), (10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"), (1, "B/s")]
    )


def effective(bandwidth: int, efficiency: float) -> int:
    """Return *bandwidth* × *efficiency*, exactly and then rounded down, but at least 1; of rates, too."""
    return max(1, math.floor(bandwidth * Fraction(repr(efficiency))))


def _split(value: Quantity, what: str, expected: str) -> tuple[Fraction, str]:
    """Return the exact number in *value* and the unit behind it."""
    if isinstance(value, str):
        if len(value) <= _LONGEST and (match := _TEXT.fullmatch(value)):
            return Fraction(match[1]), match[2]
    elif is_whole(value):
        return Fraction(int(value)), ""
    elif isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(float(value))), ""
    raise _unreadable(value, what, expected)


def _in_range(result: int, value: Quantity, what: str) -> int:
    if result > _INT64_MAX:
        raise UnitError(f"{what}: {_spell(value)} is too large")
    return result


def _unreadable(value: object, what: str, expected: str) -> UnitError:
    return UnitError(f"{what}: cannot read {_spell(value)}; expected {expected}")


def _spell(value: object) -> str:
    """Return *value* as Python writes it, shortened where nobody would read it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 2 * _LONGEST else f"{text[:_LONGEST]}…"


def _scaled(value: int, units: list[tuple[int, str]]) -> str:
    """Return *value* with four significant digits in the largest unit that it reaches."""
    size, unit = next(((size, unit) for size, unit in units if abs(value) >= size), units[-1])
    number = value / size
    digits = f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return f"{digits} {unit}"
