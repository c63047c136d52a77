"""One row of a table of measured collectives, whatever the format of the table."""

from __future__ import annotations

from dataclasses import dataclass

COLLECTIVES = {
    "alltoall": "all_to_all",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "bcast": "broadcast",
}
"""Other names of collectives, without underscores, and ours."""

KNOWN = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
)


@dataclass(frozen=True)
class MeasuredRow:
    """A measured collective.

    Attributes:
        system: name of the set of measurements that it belongs to.
        collective: what was carried out.
        nbytes: size of the buffer, as nccl-tests counts it.
        num_nodes: how many nodes took part.
        num_ranks: how many ranks on all of them.
        seconds: that one call took, out of place.
        algorithm: how; ``native`` is the library's own.
        line: of the table, from 1.
    """

    system: str
    collective: str
    nbytes: int
    num_nodes: int
    num_ranks: int
    seconds: float
    algorithm: str = "native"
    line: int = 0

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return self.num_ranks // self.num_nodes


def collective_named(name: str) -> str | None:
    """Return our name of the collective that a table calls *name*; None: there is none such."""
    plain = name.strip().lower().removesuffix("_perf").replace("-", "_").replace(" ", "_")
    ours = COLLECTIVES.get(plain.replace("_", ""), plain)
    return ours if ours in KNOWN else None
