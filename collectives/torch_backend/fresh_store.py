"""Fresh store: a part of a store that no earlier life of a group has written to.

A group that is destroyed and made again may meet in the store that it had before: that of a launcher, or
that of rank 0, which is only closed when nothing in the process holds it any more.  A launcher that starts
ranks again after a failure (``torchrun --max-restarts``) may give them theirs too.  What is left in it are
addresses at which nobody listens.  A counter of lives would tell them apart on one host only, as each host
counts its own.  So the ranks agree on a name that is new: every rank leaves a word that nobody has used
before, and rank 0 answers each with that word and the name, again and again until all have confirmed it.

The trouble with stores that are shared across restarts: pytorch/pytorch issue 135712.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from torch._C._distributed_c10d import PrefixStore

from collectives.errors import CollectiveTimeoutError
from collectives.execution.blame import spell_ranks

_POLL_SECONDS = 0.01


def fresh_store(store: Any, rank: int, world_size: int, seconds: float) -> Any:
    """Return a part of *store* that is new; *store* itself for a rank that is alone.

    Args:
        store: shared by the ranks of one group, and perhaps by earlier lives of it.
        rank: this one.
        world_size: how many there are.
        seconds: within which they have to meet.

    Raises:
        CollectiveTimeoutError: not all have come; says which, on rank 0.
    """
    if world_size == 1:
        return store
    deadline = time.monotonic() + seconds
    name = _offer(store, world_size, deadline) if rank == 0 else _accept(store, rank, deadline)
    return PrefixStore(f"life/{name}", store)


def _offer(store: Any, world_size: int, deadline: float) -> str:
    """Return a new name when all other ranks have confirmed it."""
    name = secrets.token_hex(8)
    answered: dict[int, str] = {}
    waiting = set(range(1, world_size))
    while waiting:
        for rank in sorted(waiting):
            word = _read(store, f"word/{rank}")
            if word and answered.get(rank) != word:
                store.set(f"answer/{rank}", f"{word} {name}")
                answered[rank] = word
            if _read(store, f"confirmed/{rank}") == name:
                waiting.discard(rank)
        if waiting:
            if time.monotonic() > deadline:
                raise CollectiveTimeoutError(
                    f"rank 0: {spell_ranks(sorted(waiting))} did not come to the making of this group"
                )
            time.sleep(_POLL_SECONDS)
    return name


def _accept(store: Any, rank: int, deadline: float) -> str:
    """Return the name that rank 0 answers to a word of this rank, and confirm it."""
    word = secrets.token_hex(8)
    store.set(f"word/{rank}", word)
    while True:
        answer = _read(store, f"answer/{rank}").split()
        if answer and answer[0] == word:
            store.set(f"confirmed/{rank}", answer[1])
            return answer[1]
        if time.monotonic() > deadline:
            raise CollectiveTimeoutError(f"rank {rank}: rank 0 did not come to the making of this group")
        time.sleep(_POLL_SECONDS)


def _read(store: Any, key: str) -> str:
    """Return what stands at *key*, or nothing, without waiting."""
    return store.get(key).decode() if store.check([key]) else ""
