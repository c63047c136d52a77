"""Files that ranks share: written by several of them, or read before whoever writes them has said so.

A file is followed that the user's code opens itself, or gives to ``torch.save``.  It is noticed where several
ranks of one node, or all ranks, open it to write it anew.  And it is noticed where a rank reads what another
has written, and no call leads from the writing to the reading: ranks learn of each other by collectives,
messages and keys of the store.  For that each rank has a vector clock (Mattern, "Virtual time and global
states of distributed systems", 1989) of the writings of each, from the first on.  A collective, whichever it
is, counts as one that all its members have waited for; so what is noticed is certain, and not all of it is.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pathlib
import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from collectives.execution.blame import spell_ranks
from collectives.torch_backend.group import TestbedProcessGroup
from collectives.torch_backend.work import CollectiveWork
from collectives.virtual.diagnosis.places import current_place, frames_from, is_users
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.gpu import persistence
from collectives.virtual.isolation.patching import observed, replaced
from collectives.virtual.store import VirtualStore
from collectives.virtual.streams.happens_before import Clock, join
from sim.cluster import RankThread, current_rank_thread

_serialization: Any = torch.serialization
_ON_THE_WAY = (pathlib.__file__, _serialization.__file__, persistence.__file__)
_MAX_BROUGHT = 4096
"""Of how many calls it is kept what they bring; of older ones ranks have long taken it."""
_NO_FILES = ("/dev/", "/proc/")


@dataclass(frozen=True)
class _Written:
    """How a file was written last: by whom, where, and as which of the rank's writings."""

    rank: int
    place: str
    number: int


class FilesShared:
    """Follows the files that the ranks of one run open; a `CallCheck`."""

    def __init__(self, ranks_per_node: int, num_ranks: int) -> None:
        self._ranks_per_node = ranks_per_node
        self._num_ranks = num_ranks
        self._writers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._written: dict[str, _Written] = {}
        self._early: defaultdict[tuple[str, str, str, int], set[int]] = defaultdict(set)
        self._clocks: defaultdict[int, Clock] = defaultdict(dict)
        self._calls: Counter[tuple[Hashable, int]] = Counter()
        self._brought: dict[Hashable, Clock] = {}
        self._called: dict[int, Hashable] = {}
        self._awaited: dict[tuple[int, int], Hashable] = {}

    def mistakes(self) -> Iterator[str]:
        """Yield what was found."""
        for (path, place), ranks in self._writers.items():
            nodes = Counter(rank // self._ranks_per_node for rank in ranks)
            if len(ranks) > 1 and (max(nodes.values()) > 1 or len(ranks) == self._num_ranks):
                yield (
                    f"{place}: {spell_ranks(ranks)} write the same file, {os.path.basename(path)}; let one "
                    "rank write it, or give each a name of its own"
                )
        for (path, place, written_at, writer), ranks in self._early.items():
            yield (
                f"{place}: {spell_ranks(ranks)} may read {os.path.basename(path)} before rank {writer} has "
                f"written it ({written_at}); let them pass a barrier in between"
            )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        watched_open = observed(builtins.open, before=self._opens)
        writer = observed(_serialization._open_zipfile_writer, before=self._saves)
        with replaced(
            [
                (builtins, "open", watched_open),
                (io, "open", watched_open),
                (_serialization, "_open_zipfile_writer", writer),
                (VirtualStore, "_put", observed(VirtualStore._put, before=lambda *_: self._bring("store"))),
                (VirtualStore, "wait", observed(VirtualStore.wait, after=lambda *_: self._learn("store"))),
            ]
        ):
            yield

    def _opens(self, rank_thread: RankThread, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if _is_opened_by_user():
            self._opened(rank_thread.rank, file, mode)

    def _saves(self, rank_thread: RankThread, name: Any, *args: Any, **kwargs: Any) -> None:
        self._opened(rank_thread.rank, name, "w")

    def begins(self, rank_thread: RankThread, group: TestbedProcessGroup, operation: str) -> None:
        """Let a call carry what its rank knows."""
        rank, members = rank_thread.rank, getattr(group.members, "key", None)
        key: Hashable = members, "messages"
        if operation not in ("send", "recv"):
            key = members, self._calls[members, rank]
            self._calls[members, rank] += 1
        self._bring(key)
        self._called[rank] = key

    def began(self, call: WatchedCall) -> None:
        """Let the rank know what *call* has brought, or will have when its work is over."""
        key = self._called[call.rank_thread.rank]
        if call.work._finished:
            self._learn(key)
        elif self._written:
            self._awaited[call.rank_thread.rank, id(call.work)] = key

    def ended(self, rank_thread: RankThread, work: CollectiveWork) -> None:
        """Let a rank know what the others knew when they made the call that it has waited for."""
        key = self._awaited.pop((rank_thread.rank, id(work)), None)
        if key is not None:
            self._learn(key)

    def joined(self, rank_thread: RankThread, parts: Sequence[CollectiveWork], whole: CollectiveWork) -> None:
        """Let who waits for *whole* know what *parts* bring."""
        for part in parts:
            key = self._awaited.pop((rank_thread.rank, id(part)), None)
            if key is not None:
                self._awaited[rank_thread.rank, id(whole)] = key

    def _opened(self, rank: int, file: Any, mode: str) -> None:
        try:
            path = os.path.abspath(os.fsdecode(file))
        except TypeError:
            return  # a number, or a file in memory
        if path.startswith(_NO_FILES) or str(os.getpid()) in path:
            return
        if "w" in mode or "x" in mode:
            number = self._clocks[rank][rank] = self._clocks[rank].get(rank, 0) + 1
            self._writers[path, current_place()].add(rank)
            self._written[path] = _Written(rank, current_place(), number)
        elif "r" in mode and path in self._written:
            known = self._written[path]
            if known.rank != rank and self._clocks[rank].get(known.rank, 0) < known.number:
                self._early[path, current_place(), known.place, known.rank].add(rank)

    def _bring(self, key: Hashable) -> None:
        rank_thread = current_rank_thread()
        if rank_thread is not None and self._written:
            join(self._brought.setdefault(key, {}), self._clocks[rank_thread.rank])
            if len(self._brought) > _MAX_BROUGHT:
                del self._brought[next(iter(self._brought))]

    def _learn(self, key: Hashable) -> None:
        rank_thread = current_rank_thread()
        if rank_thread is not None and key in self._brought:
            join(self._clocks[rank_thread.rank], self._brought[key])


def _is_opened_by_user() -> bool:
    """Return whether the user's code opens a file, by `open` or by a path."""
    paths = (one.f_code.co_filename for one in frames_from(sys._getframe(3)))
    return is_users(next((path for path in paths if path not in _ON_THE_WAY), "<"))
