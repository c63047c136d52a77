"""Policies against failures: what fails and how often, how training goes on, and how its state is kept.

The rates of failures that ship are those of 54 days of Llama 3's training on 16,384 H100s in nodes of 8: 419
unexpected interruptions by cause, of which each part's mean time between failures follows.  Causes are put
together as far as one part stands for them; "software" (a bug of any part of the stack, a watchdog, a
dependency) is counted by ranks, which is an assumption: nobody has published how it grows.

Source: "The Llama 3 Herd of Models", arXiv:2407.21783, 2024, table 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

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
NODES_PER_RACK = 4
"""Nodes that fail with a rack: an assumption."""
REPLACED = ("gpu", "nic", "node", "rack")
"""Parts whose failure takes a node out for repair."""

CheckpointKind = Literal["sync", "async"]
RESTARTS: Mapping[str, float] = {"restart": 600.0, "spares": 180.0, "in-process": 30.0, "shrink": 180.0}
"""Seconds until processes train again, by policy, without detection and loading: assumptions.

restart     a new job is scheduled; its processes start, import and make their communicators
spares      nodes stand by with processes started; they join, and communicators are made anew
in-process  processes live on and make their communicators anew; failed nodes are replaced as for spares
shrink      training goes on without the node until that is repaired
"""
DETECTION_SECONDS = 120.0
"""From a failure until all ranks know: an assumption, between a crash (0 s) and NCCL's time-out (600 s)."""
REPAIR_SECONDS = 24 * 3600.0
"""Until a node that has failed is back: an assumption."""
STORAGE_PER_NODE = 2e12 / 2048
"""Bytes per second into storage for each node: 2 TB/s for 2,048 (Llama 3, arXiv:2407.21783, 3.3.1)."""
COPY_BANDWIDTH = 25e9
"""Bytes per second from a GPU into its host's memory: an assumption for PCIe of the fourth generation."""


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


def parts_of(num_ranks: int, ranks_per_node: int, mtbf_hours: Mapping[str, float]) -> tuple[Part, ...]:
    """Return what can fail where *num_ranks* train.

    Args:
        num_ranks: GPUs.
        ranks_per_node: GPUs of a node.
        mtbf_hours: by the name of a part, in place of what is published; ``cluster``, the whole as one part,
            in place of all others; ``rack``, which nobody has published, besides.

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
        "rack": -(-num_nodes // NODES_PER_RACK),
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


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint takes.

    Attributes:
        nbytes: of the whole state.
        stall_seconds: for which training stands still.
        write_seconds: from then until the checkpoint is safe, while training goes on.
        load_seconds: to read it.
    """

    nbytes: float
    stall_seconds: float
    write_seconds: float
    load_seconds: float

    @classmethod
    def of(
        cls,
        nbytes: float,
        kind: CheckpointKind,
        *,
        num_ranks: int,
        storage_bandwidth: float,
        copy_bandwidth: float = COPY_BANDWIDTH,
    ) -> Checkpoint:
        """Return a checkpoint of *nbytes*, of which each rank writes an equal part.

        Args:
            nbytes: of the whole state.
            kind: ``sync``: training waits until it is written; ``async``: until it is in the hosts' memory.
            num_ranks: that write.
            storage_bandwidth: of all ranks together, bytes per second; loading is as fast as writing.
            copy_bandwidth: of a rank into its host's memory, bytes per second.
        """
        write = nbytes / storage_bandwidth
        if kind == "sync":
            return cls(nbytes, write, 0.0, write)
        return cls(nbytes, nbytes / num_ranks / copy_bandwidth, write, write)


@dataclass(frozen=True)
class Degraded:
    """Nodes that are slow for a while, and with them all others: a throttled GPU, a link that fell back.

    Attributes:
        mtbf_hours: until a node becomes slow.
        seconds: for which it is.
        slowdown: of the step while any is, such as 1.2.
    """

    mtbf_hours: float
    seconds: float
    slowdown: float


@dataclass(frozen=True)
class Setting:
    """A training on a cluster that fails.

    Attributes:
        parts: that fail.
        num_nodes: that train.
        checkpoint: what one takes.
        interval_seconds: of training between checkpoints.
        recovery: a key of `RESTARTS`.
        restart_seconds: until processes train again, without detection and loading.
        detection_seconds: until all ranks know of a failure.
        spares: nodes that stand by; None: there is always one.
        repair_seconds: until a failed node is back.
        degraded: nodes that are slow for a while; None: none is.
    """

    parts: tuple[Part, ...]
    num_nodes: int
    checkpoint: Checkpoint
    interval_seconds: float
    recovery: str = "restart"
    restart_seconds: float = RESTARTS["restart"]
    detection_seconds: float = DETECTION_SECONDS
    spares: int | None = None
    repair_seconds: float = REPAIR_SECONDS
    degraded: Degraded | None = None

    def __post_init__(self) -> None:
        if self.recovery not in RESTARTS:
            raise UsageError(f"recovery: expected one of {', '.join(RESTARTS)}, got {self.recovery!r}")

    @property
    def rate(self) -> float:
        """Failures per second."""
        return failures_per_second(self.parts)

    @property
    def outage_seconds(self) -> float:
        """From a failure until training goes on, where no other comes in between."""
        return self.detection_seconds + self.restart_seconds + self.checkpoint.load_seconds

    @property
    def has_closed_form(self) -> bool:
        """Whether `expected` holds: nobody waits for a node, trains on fewer, or is slow for a while."""
        return self.spares is None and self.recovery != "shrink" and self.degraded is None

    def at(self, interval_seconds: float) -> Setting:
        """Return it with another interval between checkpoints."""
        return replace(self, interval_seconds=interval_seconds)
