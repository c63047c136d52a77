"""Network files with what was measured on them: links of a given file, or of a system that is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from collectives.timing.formulas.bandwidth import busbw
from collectives.timing.formulas.measured import measured_at
from sim.errors import NetworkFileError
from sim.files.named import read
from sim.measured import MeasuredCurve
from sim.topology.files.measured_table import measured_toml
from testbed.calibration.tables.systems import System

_FROM_FIRST_TABLE = re.compile(
    r"^# Measured collectives.*?(?=^\[\[measured\]\])|^\[\[measured\]\]", re.M | re.S
)
_NOTE = "# Measured collectives, written by testbed calibrate --from; their fields: docs/files.md.\n\n"


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
    intra = max(reached[True], system.intra_bandwidth if system else 0.0) or reached[False]
    cards = system.nics_per_node if system and system.nics_per_node else 1
    while ranks_per_node % cards:
        cards -= 1  # cards are shared by consecutive ranks; those of a node count together
    of_node = system.nic_bandwidth * system.nics_per_node if system else 0.0
    between = max(reached[False], of_node) or intra * ranks_per_node
    source = system.source if system else "rates: the bus bandwidth that was reached"
    name = system.machine if system else "Measured machine"
    lines = [
        "schema = 1",
        'kind = "nodes"',
        f'description = "{name.replace(chr(34), "")}"',
        f"ranks_per_node = {ranks_per_node}",
        f"intra_bandwidth = {round(intra)}",
        'intra_latency = "0us"',
        f"nics_per_node = {cards}",
        f"nic_bandwidth = {round(between / cards)}",
        'nic_latency = "0us"',
        f'source = """{source}"""',
    ]
    return "\n".join(lines) + f"\n\n{_NOTE}{measured_toml(curves)}"


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
