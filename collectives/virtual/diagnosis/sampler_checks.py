"""Mistakes that stop nothing and spoil results: how ranks divide their data, and groups of others.

Looks at every pass of rank threads through a `torch.utils.data.DistributedSampler`, and gives a notice
where ranks see the same samples, because they have shuffled them differently, or where a shuffle is the
same in two passes, because nobody has called ``set_epoch``.  A collective that a rank calls in a group
that it is not in does nothing, of which torch warns; the notice says where.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DistributedSampler, Subset

from collectives.execution.blame import ranks_by, spell_ranks
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.isolation.patching import observed, on_ranks, replaced
from collectives.virtual.notices import Notices
from sim.cluster import RankThread

_c10d: Any = torch.distributed.distributed_c10d
_NUM_SHOWN = 3
"""How many places of a subset are shown of those of which it consists."""


@dataclass(frozen=True)
class _Pass:
    """What a rank took from a sampler in one pass.

    Attributes:
        rank: of the run.
        share: which share of the data it took, the sampler's rank.
        place: where in the user's code.
        indices: of the samples, in order; of a subset, in the whole.
        settings: of the sampler, which all ranks should have alike.
    """

    rank: int
    share: int
    place: str
    indices: tuple[int, ...]
    settings: dict[str, Any]


class SamplerChecks:
    """Watches the samplers of the rank threads of one run."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[DistributedSampler[Any], int] = WeakKeyDictionary()
        self._num_samplers: Counter[int] = Counter()
        self._num_passes: Counter[tuple[int, int]] = Counter()
        self._passes: defaultdict[tuple[int, int], list[_Pass]] = defaultdict(list)
        self._finished: dict[tuple[int, int], tuple[int, ...]] = {}
        self._said: set[object] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        iterate: Callable[[Any], Iterator[int]] = DistributedSampler.__iter__
        warn = observed(_c10d._warn_not_in_group, before=self._outside)

        def watched(rank_thread: RankThread, sampler: DistributedSampler[Any]) -> Iterator[int]:
            return self._pass(rank_thread, sampler, tuple(iterate(sampler)))

        with replaced(
            [
                (DistributedSampler, "__iter__", on_ranks(iterate, watched)),
                (_c10d, "_warn_not_in_group", warn),
            ]
        ):
            yield

    def _outside(self, rank_thread: RankThread, operation: str) -> None:
        place = current_place()
        if self._first(("outside", operation, place)):
            Notices.of(rank_thread.cluster).add_mistake(
                f"rank {rank_thread.rank} calls {operation} of a group that it is not in, which does nothing "
                f"({place})"
            )

    def _pass(
        self, rank_thread: RankThread, sampler: DistributedSampler[Any], indices: tuple[int, ...]
    ) -> Iterator[int]:
        """Note that a pass of the sampler begins, and return an iterator over it."""
        rank = rank_thread.rank
        if sampler not in self._numbers:
            self._numbers[sampler] = self._num_samplers[rank]
            self._num_samplers[rank] += 1
        number = self._numbers[sampler]
        key = number, self._num_passes[rank, number]
        self._num_passes[rank, number] += 1

        length = len(sampler.dataset)  # type: ignore[arg-type]
        chosen = getattr(sampler.dataset, "indices", None) if isinstance(sampler.dataset, Subset) else None
        settings: dict[str, Any] = {
            "seed": sampler.seed,
            "epoch": sampler.epoch,
            "shuffle": sampler.shuffle,
            "number of samples": length,
            "num_replicas": sampler.num_replicas,
        }
        if chosen is not None:
            settings["subset"] = f"[{', '.join(map(str, chosen[:_NUM_SHOWN]))}, …]"
            taken = tuple(int(chosen[index]) for index in indices)
        own = _Pass(rank, sampler.rank, current_place(), indices if chosen is None else taken, settings)
        passes = self._passes[key]
        passes.append(own)

        if len(passes) == rank_thread.cluster.topology.num_ranks:
            padded = max(0, sampler.total_size - length)
            text = _overlap(sorted(passes, key=lambda one: one.rank), padded)
            if text and self._first(("overlap", number)):
                Notices.of(rank_thread.cluster).add_mistake(text)
            del self._passes[key]

        return self._consumed(rank_thread, sampler.shuffle, number, own, indices)

    def _consumed(
        self, rank_thread: RankThread, shuffle: bool, number: int, own: _Pass, indices: tuple[int, ...]
    ) -> Iterator[int]:
        yield from indices
        before = self._finished.get((own.rank, number))
        self._finished[own.rank, number] = own.indices
        if shuffle and len(own.indices) > 1 and before == own.indices and self._first(("epoch", number)):
            Notices.of(rank_thread.cluster).add_mistake(
                f"a DistributedSampler gives the same shuffle again, that of epoch {own.settings['epoch']}: "
                f"call sampler.set_epoch(epoch) before every epoch ({own.place})"
            )

    def _first(self, what: object) -> bool:
        """Return whether *what* has not been told before."""
        new = what not in self._said
        self._said.add(what)
        return new


def _overlap(passes: list[_Pass], num_padded: int) -> str:
    """Return in words that the passes of all ranks overlap, and why; nothing if they do not.

    Args:
        passes: by rank.
        num_padded: how many samples come twice because they do not divide.
    """
    first = passes[0]
    differing = [name for name in first.settings if len({own.settings[name] for own in passes}) > 1]
    shares = {own.share: own for own in passes}
    repeated = len(shares) < len(passes) == first.settings["num_replicas"]
    if not (differing or repeated):
        return ""
    seen = Counter(index for own in (passes if repeated else shares.values()) for index in own.indices)
    if sum(seen.values()) - len(seen) <= num_padded:
        return ""
    why = [
        f"{name} is {_spell_values({own.rank: own.settings[name] for own in passes})}" for name in differing
    ]
    if repeated:
        why.append(f"rank= is {_spell_values({own.rank: own.share for own in passes})}")
    return (
        f"{first.place}: the ranks see overlapping data and {len(seen)} of "
        f"{first.settings['number of samples']} samples in all; their DistributedSampler must be the same "
        f"but for its rank: {'; '.join(why)}"
    )


def _spell_values(values: dict[int, Any]) -> str:
    ranks = ranks_by(dict(sorted(values.items())))
    return ", ".join(f"{value} on {spell_ranks(own)}" for value, own in ranks.items())
