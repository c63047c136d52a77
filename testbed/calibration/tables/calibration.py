"""Calibrations from tables of measured collectives: a network file for each machine in a table.

A file has the links of a given network, or of a system that is known, and the curves that were fitted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from collectives.timing.formulas.bandwidth import busbw
from collectives.timing.formulas.measured import measured_at
from sim.errors import NetworkFileError
from sim.files.named import read
from sim.measured import MeasuredCurve
from sim.topology.files.measured_table import measured_toml
from testbed.calibration import toml_text
from testbed.calibration.confidence import CLASSES, by_class
from testbed.calibration.tables.fit import FittedCurve, fit_curves
from testbed.calibration.tables.rows import Hardware, MeasuredRow, System, systems_beside
from testbed.errors import UsageError
from testbed.output.table import Advance

_GBPS = 1e9 / 8
_FROM_FIRST_TABLE = re.compile(
    r"^# Measured collectives.*?(?=^\[\[measured\]\])|^\[\[measured\]\]", re.M | re.S
)
_NOTE = "# Measured collectives, written by testbed calibrate --from; their fields: docs/files.md.\n\n"


@dataclass(frozen=True)
class TableCalibration:
    """Constants of one machine.

    Attributes:
        name: for a file.
        machine: what it is, in words.
        systems: the sets of measurements.
        fits: a curve for each collective and number of nodes.
        text: of the network file.
    """

    name: str
    machine: str
    systems: tuple[str, ...]
    fits: tuple[FittedCurve, ...]
    text: str

    def left_out_errors(self, fit: FittedCurve) -> list[float | None]:
        """Return the median error of the sizes that were left out, for each of `CLASSES`."""
        by_size = by_class(fit.held, lambda one: one.nbytes)
        return [None if own is None else own.median for own in by_size.values()]

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON types: seconds, bytes, bytes per second, fractions."""
        return {
            "machine": self.machine,
            "systems": list(self.systems),
            "curves": [
                {
                    **asdict(fit.curve),
                    "num_rows": fit.num_rows,
                    "left_out_median_error": dict(zip(CLASSES, self.left_out_errors(fit), strict=True)),
                }
                for fit in self.fits
            ],
        }


def calibrations_from(
    rows: Sequence[MeasuredRow],
    path: Path,
    *,
    advance: Advance,
    select: str | None = None,
    network: str | None = None,
) -> list[TableCalibration]:
    """Return a calibration for each machine among *rows*.

    Args:
        rows: of the table.
        path: of the table; systems in a file beside it say what a machine is.
        advance: is told what is being fitted.
        select: patterns of names of sets, with commas between; by default all.
        network: whose links and hardware the files take over; by default those of the system.

    Raises:
        UsageError: no row is left, or ours and the library's algorithms are mixed.
    """
    patterns = [text.strip() for text in (select or "*").split(",")]
    chosen = [row for row in rows if any(fnmatchcase(row.system, pattern) for pattern in patterns)]
    if not chosen:
        names = ", ".join(dict.fromkeys(row.system for row in rows))
        raise UsageError(f"--select {select}: no set of the table has such a name; there are {names}")
    chosen = _one_algorithm(chosen, path)

    systems = systems_beside(path)
    machines: dict[str, list[MeasuredRow]] = defaultdict(list)
    for row in chosen:
        system = systems.get(row.system)
        name = f"{path.stem}, {row.ranks_per_node} ranks a node" if system is None else system.machine
        machines[path.stem if network else name].append(row)

    for machine in list(machines):  # what was measured in a node belongs to the only cluster of such nodes
        clusters = [name for name in machines if name.startswith(f"{machine}, ")]
        if len(clusters) == 1:
            machines[clusters[0]] += machines.pop(machine)

    found = []
    for machine, own in machines.items():
        advance(machine)
        sets = tuple(sorted({row.system for row in own}))
        known = [systems[name] for name in sets if name in systems]
        source = "; ".join(dict.fromkeys(system.source for system in known)) or str(path.name)
        fits = fit_curves(own, source)
        curves = [fit.curve for fit in fits]
        text = (
            with_measured(network, curves)
            if network
            else described_by_measurements(curves, known[0] if known else None)
        )
        plain = re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
        found.append(TableCalibration(plain, machine, sets, tuple(fits), text))
    return found


def _one_algorithm(rows: list[MeasuredRow], path: Path) -> list[MeasuredRow]:
    """Return the rows of the library's own algorithm, or of the only one that there is."""
    algorithms = list(dict.fromkeys(row.algorithm for row in rows))
    if len(algorithms) > 1 and "native" in algorithms:
        return [row for row in rows if row.algorithm == "native"]
    if len(algorithms) > 1:
        raise UsageError(
            f"{path}: rows of {', '.join(algorithms)}; expected those of native, or of one algorithm alone"
        )
    return rows


def with_measured(base: str, curves: Sequence[MeasuredCurve]) -> str:
    """Return the text of the network file or preset *base*, its measured tables replaced by *curves*.

    Raises:
        NetworkFileError: there is no such file or preset.
    """
    text, _, _ = read(base, "presets", "network", NetworkFileError)
    return f"{without_measured(text)}\n{_NOTE}{measured_toml(curves)}"


def without_measured(text: str) -> str:
    """Return a network file's text without its measured tables, which stand at its end."""
    found = _FROM_FIRST_TABLE.search(text)
    return (text if found is None else text[: found.start()]).rstrip() + "\n"


def described_by_measurements(curves: Sequence[MeasuredCurve], system: System | None) -> str:
    """Return a file of nodes that hold what was measured.

    The links have the rates that *system* is known to have, or else the bus bandwidth that was reached; no
    latency, for it is in the tables.  A link is never slower than what was measured needs.
    """
    ranks_per_node = curves[0].ranks_per_node
    reached = {one_node: _most_bus_bandwidth(curves, one_node=one_node) for one_node in (True, False)}
    hardware = system.hardware if system else Hardware()
    intra = max(reached[True], (hardware.intra_gbps_per_gpu or 0) * _GBPS) or reached[False]
    cards = hardware.nics_per_node or 1
    while ranks_per_node % cards:
        cards -= 1  # cards are shared by consecutive ranks; those of a node count together
    of_node = (hardware.nic_gbps or 0) * _GBPS * (hardware.nics_per_node or 0)
    between = max(reached[False], of_node) or intra * ranks_per_node
    fields = {
        "schema": 1,
        "kind": "nodes",
        "description": system.machine if system else "Measured machine",
        "ranks_per_node": ranks_per_node,
        "intra_bandwidth": round(intra),
        "intra_latency": "0us",
        "nics_per_node": cards,
        "nic_bandwidth": round(between / cards),
        "nic_latency": "0us",
        "source": system.source if system else "rates: the bus bandwidth that was reached",
    }
    return "\n".join([*toml_text.fields(fields), "", _NOTE]) + measured_toml(curves)


def _most_bus_bandwidth(curves: Sequence[MeasuredCurve], *, one_node: bool) -> float:
    """Return the most bytes/s that a rank's links, or those of a node, have shown; 0: not measured."""
    return max(
        (
            max(busbw(own.collective, own.sizes[-1], measured_at(own, own.sizes[-1]), own.num_ranks), 0.0)
            for own in curves
            if (own.num_nodes == 1) == one_node
        ),
        default=0.0,
    )
