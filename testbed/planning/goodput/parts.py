"""Parts of a cluster that fail, and how often each does.

The figures that ship are those of 54 days of Llama 3's training on 16,384 H100s in nodes of 8: 419 unexpected
interruptions by cause, of which each part's mean time between failures follows.  Causes are put together as
far as one part stands for them; "software" (a bug of any part of the stack, a watchdog, a dependency) is
counted by ranks, which is an assumption: nobody has published how it grows.

Source: "The Llama 3 Herd of Models", arXiv:2407.21783, 2024, table 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.errors import UsageError

SOURCE = "54 days of Llama 3 on 16,384 GPUs (arXiv:2407.21783, table 5)"
HOUR = 3600.0
_RANKS, _NODES, _HOURS = 16_384, 2048, 54 * 24
_INTERRUPTIONS = {
    # faulty GPU, HBM3, SRAM, system processor, silent data corruption, thermal interface and sensor
    "gpu": (_RANKS, 148 + 72 + 19 + 17 + 6 + 6),
    "nic": (_RANKS, 7),
    "link": (_RANKS, 35),  # switch or cable
    # unplanned maintenance of the host, SSD, power supply, chassis, IO board, CPU, memory
    "node": (_NODES, 32 + 3 + 3 + 2 + 2 + 2 + 2),
    "software": (_RANKS, 54 + 7 + 2),  # bugs, NCCL's watchdog, dependencies
}
"""Of each part, how many there were, and how often one of them has interrupted the training."""

PUBLISHED = {name: count * _HOURS / times for name, (count, times) in _INTERRUPTIONS.items()}
"""Hours between failures of one part."""
REPLACED = ("gpu", "nic", "node", "rack")
"""Parts whose failure takes a node out for repair."""


@dataclass(frozen=True)
class Part:
    """Parts of one kind.

    Attributes:
        name: of the kind.
        count: how many there are.
        mtbf_hours: between failures of one of them, on average; infinite: it never fails.
        source: of that figure.
    """

    name: str
    count: int
    mtbf_hours: float
    source: str

    @property
    def rate(self) -> float:
        """Failures per second, of all of them together."""
        return self.count / (self.mtbf_hours * HOUR)

    @property
    def is_replaced(self) -> bool:
        """Whether a failure takes a node out for repair."""
        return self.name in REPLACED


def parts_of(
    num_ranks: int, ranks_per_node: int, mtbf_hours: Mapping[str, float], nodes_per_rack: int = 4
) -> tuple[Part, ...]:
    """Return what can fail where *num_ranks* train.

    Args:
        num_ranks: GPUs.
        ranks_per_node: GPUs of a node.
        mtbf_hours: by the name of a part, in place of what is published; ``cluster``, the whole as one part,
            in place of all others; ``rack``, which nobody has published, besides.
        nodes_per_rack: nodes that fail with a rack.

    Raises:
        UsageError: there is no such part, or a time is not above 0.
    """
    num_nodes = -(-num_ranks // ranks_per_node)
    counts = {
        "gpu": num_ranks,
        "nic": num_ranks,
        "link": num_ranks,
        "node": num_nodes,
        "software": num_ranks,
        "rack": -(-num_nodes // nodes_per_rack),
        "cluster": 1,
    }
    for name, hours in mtbf_hours.items():
        if name not in counts:
            raise UsageError(f"mtbf: there is no part {name!r}; expected one of {', '.join(counts)}")
        if not hours > 0:
            raise UsageError(f"mtbf of {name}: expected a time above 0, got {hours:g} hours")
    given = {name: Part(name, counts[name], hours, "given") for name, hours in mtbf_hours.items()}
    if "cluster" in given:
        return tuple(given.values())
    shipped = {name: Part(name, counts[name], hours, SOURCE) for name, hours in PUBLISHED.items()}
    return tuple((shipped | given).values())


def failures_per_second(parts: tuple[Part, ...]) -> float:
    """Return the rate at which any of *parts* fails."""
    return math.fsum(part.rate for part in parts)
