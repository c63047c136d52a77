"""ZeroRedundancyOptimizer on ranks that may be folded: each rank has the parameters of its own share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.distributed.algorithms.join import Joinable

from collectives.virtual.folding.divisions import Shares, note_division
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    The optimizer's module is not imported for this, as that takes a third of a second; the class under it is
    there anyway.
    """
    yield Joinable, "__init__", _init


_init_joinable = Joinable.__init__


def _init(joinable: Any) -> None:
    _init_joinable(joinable)
    partition = getattr(joinable, "_partition_parameters", None)
    if partition is None:
        return

    def partitioned(*args: Any) -> Any:
        """Partition parameters, and note how."""
        groups_of_ranks = partition(*args)
        if groups_of_ranks:
            note_division(Shares(tuple(map(_sizes, groups_of_ranks))))
        return groups_of_ranks

    joinable._partition_parameters = partitioned


def _sizes(groups: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return how many elements the parameters of one rank have."""
    return tuple(parameter.numel() for group in groups for parameter in group["params"])
