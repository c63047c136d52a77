"""Policies against failures: how training goes on, and how its state is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from testbed.errors import UsageError
from testbed.planning.goodput.parts import Part, failures_per_second

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
