"""The library's collectives inside a node: the default answer beside what was measured, for every preset.

The default is what ``simulate("nccl", network=...)`` and every command say. Beside the sizes that its table
was fitted to it is nearly exact, which proves only that it says what the file says; so each curve is also
fitted to every second of its sizes and predicts the others, and once more the other way round. Then sizes
are sixteen times apart, where the file has them four times apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median
from typing import Any

from benchmarks.lab.published.carried import Call, Carrier, call_of
from benchmarks.lab.published.split import calibrating_presets, published_split
from collectives.timing import default_model, default_transport_model, simulate
from collectives.timing.formulas.measured import measured_at
from sim.topology.description import NetworkDescription
from testbed.calibration.confidence import Compared
from testbed.calibration.tables.fit import Held, fit_curves, halves
from testbed.calibration.tables.rows import MeasuredRow

_seconds = attrgetter("seconds")

EDGE = 2**20
"""Bytes that divide what latency decides from what bytes do."""


@dataclass(frozen=True)
class DefaultBeside(Compared):
    """A row beside the default answer, in seconds.

    Attributes:
        row: what was measured.
        by_model: by default if the file held no measurements: what NCCL's model makes likely.
    """

    row: MeasuredRow
    by_model: float


@dataclass(frozen=True)
class NodeJudged:
    """A collective inside a node of a preset.

    Attributes:
        collective: its name.
        rows: those that calibrate it, beside the default.
        left_out: every second size, predicted from the others.
    """

    collective: str
    rows: tuple[DefaultBeside, ...]
    left_out: tuple[Held, ...]

    def errors(self) -> dict[str, list[tuple[int, float]]]:
        """Return sizes with errors: of the default, of sizes left out, and of NCCL's model alone."""
        return {
            "default": [(row.row.nbytes, row.error) for row in self.rows],
            "left_out": [(held.nbytes, held.error) for held in self.left_out],
            "by_model": [(row.row.nbytes, row.by_model / row.measured - 1) for row in self.rows],
        }

    def as_json(self) -> dict[str, Any]:
        """Return the errors and the rows as JSON types."""
        return {
            "collective": self.collective,
            **{
                f"{what}_{'' if large else 'small_'}median_error": median_error(errors, large=large)
                for what, errors in self.errors().items()
                for large in (False, True)
            },
            "rows": [
                {
                    "ranks": row.row.num_ranks,
                    "nbytes": row.row.nbytes,
                    "predicted_seconds": row.predicted,
                    "measured_seconds": row.measured,
                    "error": row.error,
                    "held": row.held,
                }
                for row in self.rows
            ],
        }


def judge_node(network: NetworkDescription, systems: Iterable[str]) -> list[NodeJudged]:
    """Return the collectives that *systems* have measured inside a node, beside the default of *network*."""
    calls: dict[str, dict[Call, list[MeasuredRow]]] = {}
    for row in _shortest(row for row in published_split().calibrating if row.system in systems):
        if row.num_nodes == 1:
            calls.setdefault(row.collective, {}).setdefault(call_of(row), []).append(row)
    return [
        NodeJudged(
            collective,
            tuple(beside for rows in own.values() for beside in _beside(network, rows)),
            tuple(held for rows in own.values() for held in halves(rows)),
        )
        for collective, own in sorted(calls.items())
    ]


def _shortest(rows: Iterable[MeasuredRow]) -> list[MeasuredRow]:
    """Return of several rows of a system at one size the shortest; what disturbs a call makes it longer."""
    found: dict[tuple[str, int], MeasuredRow] = {}
    for row in rows:
        found[row.system, row.nbytes] = min(row, found.get((row.system, row.nbytes), row), key=_seconds)
    return list(found.values())


def _beside(network: NetworkDescription, rows: Sequence[MeasuredRow]) -> Iterator[DefaultBeside]:
    topology = network.topology(getattr(network.fields, "ranks_per_node", 1))
    unmeasured = replace(topology, measured=())
    for row in rows:
        run, by_model = (
            simulate(
                "nccl",
                nbytes=row.nbytes,
                topology=one,
                collective=row.collective,
                placement=list(range(row.num_ranks)),
                transport_model=default_transport_model(one),
                model=default_model(one.hardware),
            )
            for one in (topology, unmeasured)
        )
        interval = run.interval_seconds or (run.seconds, run.seconds)
        yield DefaultBeside(run.seconds, row.seconds, row, by_model.seconds, interval=interval)


def carried_to_a_later_generation(first: str = "dgx-a100", other: str = "dgx-h100") -> list[Held]:
    """Return the rows of the preset *other* as they follow from those of *first*, of an earlier generation.

    That is how far presets of which nobody has measured a node are to be believed (see
    `benchmarks.lab.published.carried`).
    """
    systems = calibrating_presets()
    rows = [row for row in published_split().calibrating if row.num_nodes == 1]
    carrier = Carrier.between(first, other)
    known = fit_curves(carrier.carried([row for row in rows if row.system in systems[first]]))
    curves = {call_of(own.curve): own.curve for own in known}
    return [
        Held(measured_at(curves[call_of(row)], row.nbytes), row.seconds, row.nbytes, row.system)
        for row in _shortest(row for row in rows if row.system in systems[other])
        if call_of(row) in curves
    ]


def median_error(errors: Iterable[tuple[int, float]], *, large: bool) -> float | None:
    """Return the median absolute error of sizes from `EDGE` on, or below; None where there are none."""
    chosen = [abs(error) for nbytes, error in errors if (nbytes >= EDGE) == large]
    return median(chosen) if chosen else None
