"""Items of a mapping of the process, such as ``sys.modules``, some of which each rank has for itself."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

_ABSENT = object()


class ItemsPerRank:
    """Those items of *owner* whose names are added, one value for each rank and one outside of ranks.

    Args:
        owner: the mapping.
        are_absent: whether what a rank has not put there is absent for it; else it finds what another has.
    """

    def __init__(self, owner: MutableMapping[str, Any], *, are_absent: bool = True) -> None:
        self._owner = owner
        self._are_absent = are_absent
        self._names: dict[str, None] = {}
        self._of_rank: dict[int | None, list[Any]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def add(self, name: str) -> None:
        """Let each rank have *name* for itself from now on; what is in place stays so for now."""
        self._names.setdefault(name)

    def mine(self) -> dict[str, Any]:
        """Return the items that are in place."""
        return {name: self._owner[name] for name in self._names if name in self._owner}

    def of_first(self) -> dict[str, Any]:
        """Return the items of the first rank that was kept, where it has them."""
        values = next((own for rank, own in self._of_rank.items() if rank is not None), [])
        return {name: value for name, value in zip(self._names, values, strict=False) if value is not _ABSENT}

    def keep(self, rank: int | None) -> int:
        """Keep what is in place as that of *rank*, None: of nobody; return how many items that are."""
        get = self._owner.get
        values = self._of_rank[rank] = [get(name, _ABSENT) for name in self._names]
        return len(values) - sum(value is _ABSENT for value in values)

    def put(self, rank: int | None) -> None:
        """Put what *rank* has in place of what is there."""
        owner, values = self._owner, self._of_rank.get(rank, [])
        if self._are_absent:
            values += [_ABSENT] * (len(self._names) - len(values))
        for name, value in zip(self._names, values, strict=False):  # names may have been added since
            if value is _ABSENT:
                owner.pop(name, None)
            else:
                owner[name] = value


class EntriesPerRank:
    """All entries of *owner* with certain names, where there are seldom any."""

    def __init__(self, owner: MutableMapping[str, Any], names: ItemsPerRank) -> None:
        self._owner, self._names = owner, names
        self._of_rank: dict[int | None, dict[str, Any]] = {}

    def keep(self, rank: int | None) -> None:
        """Keep what is in place as that of *rank*, and take it away."""
        if self._owner:
            taken = {name: self._owner.pop(name) for name in list(self._owner) if name in self._names}
            if taken:
                self._of_rank[rank] = taken

    def put(self, rank: int | None) -> None:
        """Put what *rank* has in place."""
        entries = self._of_rank.pop(rank, None)
        if entries:
            self._owner.update(entries)
