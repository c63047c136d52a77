"""Choices noted: by which programs the collectives of a run went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collectives.catalogue.selectors import Selector
from collectives.program import Algorithm


@dataclass
class Carried:
    """Collectives of one kind that went by one program.

    Attributes:
        collective: what was carried out.
        hosts: the place of each rank of the group, or of the first such group.
        algorithm: the program.
        smallest_bytes: of the buffers, as nccl-tests counts them.
        largest_bytes: of the buffers.
    """

    collective: str
    hosts: tuple[int, ...]
    algorithm: Algorithm
    smallest_bytes: int
    largest_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "collective": self.collective,
            "ranks": len(self.hosts),
            "algorithm": str(self.algorithm),
            "smallest_bytes": self.smallest_bytes,
            "largest_bytes": self.largest_bytes,
        }


@dataclass
class Noted:
    """A selector that notes what it has chosen; `Selector`.

    Attributes:
        selector: that chooses.
        hosts: the place of each rank of the group.
        noted: where, by collective, number of ranks and program.
    """

    selector: Selector
    hosts: tuple[int, ...]
    noted: dict[tuple[str, int, str], Carried]
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return what the selector chooses for *nbytes* bytes."""
        algorithm = self.selector.select(collective, nbytes)
        if algorithm is not None and (collective, nbytes) not in self._seen:
            self._seen.add((collective, nbytes))
            key = collective, len(self.hosts), str(algorithm)
            own = self.noted.setdefault(key, Carried(collective, self.hosts, algorithm, nbytes, nbytes))
            own.smallest_bytes = min(own.smallest_bytes, nbytes)
            own.largest_bytes = max(own.largest_bytes, nbytes)
        return algorithm
