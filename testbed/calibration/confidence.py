"""Predictions beside what was measured: errors in figures and words, and within what measurements lie.

Nine of ten measurements lie within an interval, by the family that a prediction belongs to: predictions that
are wrong for the same reasons, such as a profile's step on one node of GPUs, a composed layout on several,
NCCL's model at a size.  ``confidence.toml`` holds of each the factors by which measured rows were above their
predictions (``python -m benchmarks.lab.intervals`` writes it and says how).

Assumed: what is asked about is as far from its family's predictions as the rows that were measured.  Links
alone, without software, promise nothing of a real run, so an ideal prediction has no interval.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

from collectives.timing.assumptions import ALL, Assumptions
from collectives.timing.run import Run
from sim.topology import Topology
from testbed.output.table import counted, grouped, seconds

SMALL = 2**19
"""Bytes from which a row tells of the network; smaller ones tell of the software, too."""

CLASSES = ("below 64 KiB", "to 16 MiB", "to 1 GiB", "above")
"""Of sizes, by which errors are reported, as protocols and bounds change with the size."""
_EDGES = (2**16, 2**24, 2**30)


def size_class(nbytes: int) -> str:
    """Return the class of *nbytes*; an edge belongs to the class above it."""
    return CLASSES[sum(nbytes >= edge for edge in _EDGES)]


@dataclass(frozen=True)
class Compared:
    """A prediction beside its measurement; what it is of, a subclass says.

    Attributes:
        predicted: as it was foretold, in the unit of *measured*.
        measured: as it came.
        interval: within which nine of ten measurements are expected; None: nothing was said.
    """

    predicted: float
    measured: float
    interval: tuple[float, float] | None = field(default=None, kw_only=True)

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the measurement; None where there is none."""
        return None if self.interval is None else self.interval[0] <= self.measured <= self.interval[1]


R = TypeVar("R", bound=Compared)


@dataclass(frozen=True)
class Errors:
    """Errors of some rows.

    Attributes:
        num_rows: how many.
        median: of the absolute errors.
        ninth: the absolute error that nine in ten do not exceed.
        worst: the largest in absolute value, with its sign.
        bias: median of the signed errors.
        held: the part of the intervals that hold their measurement; None: there are no intervals.
    """

    num_rows: int
    median: float
    ninth: float
    worst: float
    bias: float
    held: float | None

    @classmethod
    def of(cls, rows: Iterable[Compared]) -> Errors | None:
        """Return the errors of *rows*; None where there are none."""
        known = list(rows)
        if not known:
            return None
        errors = [row.error for row in known]
        sizes = sorted(map(abs, errors))
        held = [row.held for row in known if row.held is not None]
        return cls(
            num_rows=len(known),
            median=median(sizes),
            ninth=sizes[math.ceil(0.9 * len(sizes)) - 1],
            worst=max(errors, key=abs),
            bias=median(errors),
            held=sum(held) / len(held) if held else None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the errors as JSON types; the worst without its sign."""
        return {
            "num_rows": self.num_rows,
            "median_error": self.median,
            "worst_error": abs(self.worst),
            "bias": self.bias,
            "held": self.held,
        }


def by_class(rows: Iterable[R], nbytes: Callable[[R], int]) -> dict[str, Errors | None]:
    """Return the errors of *rows* by class of size, in ascending order; None where a class has no row."""
    classes = grouped(rows, lambda row: size_class(nbytes(row)))
    return {name: Errors.of(classes.get(name, ())) for name in CLASSES}


def worst(rows: Iterable[R], number: int) -> list[R]:
    """Return the *number* of *rows* that are furthest off, the worst first."""
    return sorted(rows, key=lambda row: -abs(row.error))[:number]


def figures_by_size(rows: Sequence[R], nbytes: Callable[[R], int]) -> Mapping[str, Any]:
    """Return the figures of *rows*, sizes from `SMALL` on and smaller ones apart, as JSON types."""
    large = Errors.of(row for row in rows if nbytes(row) >= SMALL)
    small = Errors.of(row for row in rows if nbytes(row) < SMALL)
    return {
        "num_rows": len(rows),
        "median_error": None if large is None else large.median,
        "worst_error": None if large is None else abs(large.worst),
        "small_median_error": None if small is None else small.median,
    }


def far_off(errors: Errors | None, of: str = "of the time") -> str:
    """Return in a sentence how far predictions are off."""
    if errors is None:
        return "No row is large enough to judge by."
    what = "%" if of == "of the time" else "points"
    return (
        f"By {100 * errors.median:.1f} {what} {of} (median of {counted(errors.num_rows, 'row')}), at worst "
        f"{100 * errors.worst:+.1f} {what}."
    )


def signed(error: float) -> str:
    """Return *error* in percent, with its sign."""
    return f"{100 * error:+.1f} %"


FILE = Path(__file__).with_name("confidence.toml")
NCCL: Literal["nccl"] = "nccl"
LIBRARY: Literal["library"] = "library"
"""Families of what NCCL expects of itself, and of the likely times of the library's own collectives."""


@dataclass(frozen=True)
class Interval:
    """Where nine of ten measurements of something predicted are expected.

    Attributes:
        low: seconds that one in twenty stays below.
        high: seconds that one in twenty exceeds.
        source: which measured rows say so.
    """

    low: float
    high: float
    source: str

    def __str__(self) -> str:
        return f"{seconds(self.low)} to {seconds(self.high)}"


def as_fields(known: Interval | None) -> dict[str, Any]:
    """Return the fields of a row that say how sure it is; None: nobody has measured such."""
    if known is None:
        return {"low": None, "high": None, "interval_from": ""}
    return {"low": known.low, "high": known.high, "interval_from": known.source}


def interval(family: str, predicted: float, deviation: float = 1.0) -> Interval | None:
    """Return where measurements lie of what is *predicted* in seconds; None: no row of *family* was measured.

    Args:
        family: a table of the file.
        predicted: seconds.
        deviation: of a family whose predictions say themselves how sure each is, what this one says: the
            factors are then to its power.
    """
    known = known_families().get(family)
    if known is None:
        return None
    low, high = (predicted * math.exp(deviation * math.log(known[end])) for end in ("low", "high"))
    rows = f"{counted(known['rows'], 'measured row')} in {counted(known['groups'], 'group')}"
    held = "" if "held" not in known else f"; of groups left out {100 * known['held']:.0f} % were held"
    return Interval(low, high, f"{family}: {rows}{held}")


def interval_of_step(
    predicted: float, computed: float, assumed: Assumptions, topology: Topology
) -> Interval | None:
    """Return where measurements of a step lie that `simulate_step` predicts: not below what is computed.

    None: not all inefficiencies are counted, no ranks meet, or no such steps were measured.
    """
    software = assumed.software
    if topology.num_ranks == 1 or tuple(software.inefficiencies) != (ALL,):
        return None
    if software.transport.name == "gloo":
        known = interval("step over Gloo", predicted)
    elif assumed.model == "links":
        return None
    else:
        known = interval(f"step on {nodes_of(topology)}", predicted)
    return None if known is None else replace(known, low=max(known.low, computed))


def interval_of_run(run: Run, assumed: Assumptions) -> Interval | None:
    """Return where measurements of a collective lie that `simulate` predicts, as a real run would do it.

    None: conditions or links alone are asked about, no ranks meet, or nobody has measured such, as of our
    programs between GPUs.
    """
    if run.conditions or run.num_ranks == 1 or not run.nbytes:
        return None
    if run.interval_seconds is not None:
        beyond = f"; {run.beyond}" if run.beyond else ""
        return Interval(*run.interval_seconds, f"measurements in the network's file{beyond}")
    if run.model == "links" and assumed.software.transport.name == "gloo":
        return interval(f"program over Gloo, {size_class(run.nbytes)}", run.seconds)
    if run.model != NCCL:
        return None
    family = LIBRARY if assumed.model == LIBRARY else NCCL
    return interval(f"{family}, {size_class(run.nbytes)}", run.seconds)


def nodes_of(topology: Topology) -> str:
    """Return whether *topology* is one node of GPUs or several, in the words of the families."""
    return "one node" if topology.num_ranks <= topology.ranks_per_node else "several nodes"


@cache
def known_families() -> Mapping[str, Mapping[str, Any]]:
    """Return what the file says of each family."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
