"""Measured collectives: what a table of measurements says a collective takes on a machine, as few constants.

A library such as NCCL changes its protocol with the size of a message, so its time is not one line in the
size but nearly the least of a few: little latency and little bandwidth first (LL), much of both at last
(Simple).  A `MeasuredCurve` is that: its lines, the sizes between which it was measured, what was measured
beside the lines, and how far measurements lie from the whole.  `collectives.timing.formulas.measured`
evaluates it.

The lines bear NCCL's names in the order of their latency; which protocol the library really took, a table
of times does not say.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import TopologyError
from sim.units import parse_count

PROTOCOLS = ("LL", "LL128", "Simple")
"""Names of the lines, from the one of least latency to the one of most bandwidth."""


@dataclass(frozen=True)
class Line:
    """A time that grows in proportion to the size, from a latency on.

    Attributes:
        latency_ps: picoseconds of a message of no bytes.
        bandwidth: bytes of the buffer per second, as nccl-tests counts both (algorithm bandwidth).

    Raises:
        TopologyError: a latency below 0 or a bandwidth below 1.
    """

    latency_ps: int
    bandwidth: int

    def __post_init__(self) -> None:
        parse_count(self.latency_ps, "measured: latency", 0)
        parse_count(self.bandwidth, "measured: bandwidth", 1)


@dataclass(frozen=True)
class MeasuredCurve:
    """What one collective takes on so many nodes of so many ranks each, by measurement.

    Attributes:
        collective: what was measured.
        num_nodes: on how many nodes.
        ranks_per_node: how many ranks on each.
        lines: of LL, LL128 and Simple; the first ones are left out where fewer lines do.
        sizes: bytes of the buffers that were measured, in ascending order.
        factors: what was measured over what the lines say, at each of *sizes*; between two sizes its
            logarithm runs in proportion to that of the size.  None: the lines alone.
        spread: nine of ten measurements of less than 16 MiB lie between the time over 1 + spread and the
            time times 1 + spread.
        spread_large: the same from 16 MiB on.
        systems: names of the tables that were fitted.
        source: where the measurements are from.
        carried: from what other machine the curve was carried over, and how, in words; empty where all of
            it was measured.

    Raises:
        TopologyError: a value that is not allowed; names the field.
    """

    collective: str
    num_nodes: int
    ranks_per_node: int
    lines: tuple[Line, ...]
    sizes: tuple[int, ...]
    factors: tuple[float, ...] = ()
    spread: float = 0.0
    spread_large: float = 0.0
    systems: tuple[str, ...] = ()
    source: str = ""
    carried: str = ""

    def __post_init__(self) -> None:
        parse_count(self.num_nodes, "measured: num_nodes", 1)
        parse_count(self.ranks_per_node, "measured: ranks_per_node", 1)
        if not 1 <= len(self.lines) <= len(PROTOCOLS):
            raise TopologyError(f"measured: lines: expected 1 to {len(PROTOCOLS)}, got {len(self.lines)}")
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 0:
            raise TopologyError("measured: sizes: expected at least one, in ascending order, from 0 on")
        if self.factors and (len(self.factors) != len(self.sizes) or min(self.factors) <= 0):
            raise TopologyError(
                f"measured: factors: expected one above 0 for each of {len(self.sizes)} sizes, or none; "
                f"got {len(self.factors)}"
            )
        for name in ("spread", "spread_large"):
            if getattr(self, name) < 0:
                raise TopologyError(f"measured: {name}: expected 0 or more, got {getattr(self, name)}")

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.num_nodes * self.ranks_per_node
