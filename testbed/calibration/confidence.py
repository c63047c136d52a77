"""Confidence in a prediction: within what nine of ten measurements lie, by the family that it belongs to.

A family is predictions that are wrong for the same reasons: a profile's step on one node of GPUs, a composed
layout on several, NCCL's model at a size.  ``confidence.toml`` holds of each the factors by which measured
rows were above their predictions (``python -m benchmarks.lab.intervals`` writes it and says how).

Assumed: what is asked about is as far from its family's predictions as the rows that were measured.  Links
alone, without software, promise nothing of a real run, so an ideal prediction has no interval.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from collectives.timing.assumptions import ALL, Assumptions
from collectives.timing.run import Run
from sim.topology import Topology
from testbed.calibration.errors import size_class
from testbed.output.table import counted, seconds

FILE = Path(__file__).with_name("confidence.toml")


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


def interval_of_size(model: str, nbytes: int, predicted: float) -> Interval | None:
    """Return the same of a collective of *nbytes* that is timed by *model*."""
    return interval(f"{model}, {size_class(nbytes)}", predicted)


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
        return interval_of_size("program over Gloo", run.nbytes, run.seconds)
    return interval_of_size(run.model, run.nbytes, run.seconds) if run.model == "nccl" else None


def nodes_of(topology: Topology) -> str:
    """Return whether *topology* is one node of GPUs or several, in the words of the families."""
    return "one node" if topology.num_ranks <= topology.ranks_per_node else "several nodes"


@cache
def known_families() -> Mapping[str, Mapping[str, Any]]:
    """Return what the file says of each family."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
