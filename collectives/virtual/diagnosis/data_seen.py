"""Data seen: ranks of one DDP model that train on the same batches.

DDP averages the gradients of different batches; where two ranks give it the same ones, one of them works for
nothing.  Batches of a `DataLoader` are compared by their contents, and only those of a pass in which the
optimizer steps.  Data that are the same all along, such as ones, say nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import dataloader

from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.iterations import Iterations
from sim.cluster import RankThread, current_rank_thread

_NUM_BATCHES = 4
"""How many batches of a pass are compared."""
_iterator: Any = dataloader._BaseDataLoaderIter


@dataclass
class _Pass:
    """The first batches that a rank has taken from a loader in a pass, by what is in them."""

    rank: int
    place: str
    began: int
    group: tuple[int, ...]
    batches: list[int] = field(default_factory=list)
    has_trained: bool = False


class DataSeen:
    """Compares the batches that the ranks of one run take."""

    def __init__(self) -> None:
        self._groups: dict[int, tuple[int, ...]] = {}
        self._of_iterator: WeakKeyDictionary[Any, _Pass] = WeakKeyDictionary()
        self._passes: defaultdict[int, list[_Pass]] = defaultdict(list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        made, next_ = DistributedDataParallel.__init__, _iterator.__next__

        def watched_made(model: Any, *args: Any, **kwargs: Any) -> None:
            made(model, *args, **kwargs)
            rank_thread = current_rank_thread()
            if rank_thread is not None:
                hosts = getattr(getattr(model.process_group, "members", None), "hosts", ())
                self._groups[rank_thread.rank] = tuple(hosts)

        def watched_next(iterator: Any) -> Any:
            rank_thread = current_rank_thread()
            batch = next_(iterator)
            if rank_thread is not None and rank_thread.rank in self._groups:
                self._taken(rank_thread, iterator, batch)
            return batch

        with replaced(
            [(DistributedDataParallel, "__init__", watched_made), (_iterator, "__next__", watched_next)]
        ):
            yield

    def mistakes(self) -> Iterator[str]:
        """Yield which ranks have trained on the same batches."""
        said = set()
        for number in range(max(map(len, self._passes.values()), default=0)):
            alike: defaultdict[tuple[Any, ...], list[_Pass]] = defaultdict(list)
            for passes in self._passes.values():
                if number < len(passes) and _tells(passes[number]):
                    alike[passes[number].group, tuple(passes[number].batches)].append(passes[number])
            for same in alike.values():
                ranks = [one.rank for one in same]
                if len(same) > 1 and same[0].place not in said:
                    said.add(same[0].place)
                    yield (
                        f"{same[0].place}: {spell_ranks(ranks)} train on the same batches, and DDP averages "
                        "their gradients; divide the data by a DistributedSampler with as many replicas as "
                        "the group has ranks"
                    )

    def _taken(self, rank_thread: RankThread, iterator: Any, batch: Any) -> None:
        finished = Iterations.of(rank_thread.cluster).finished[rank_thread.rank]
        own = self._of_iterator.get(iterator)
        if own is None:
            rank = rank_thread.rank
            own = _Pass(rank, current_place(), finished, self._groups[rank])
            self._of_iterator[iterator] = own
            self._passes[rank].append(own)
        own.has_trained |= finished > own.began and torch.is_grad_enabled()
        if len(own.batches) < _NUM_BATCHES:
            own.batches.append(_contents(batch))


def _tells(one: _Pass) -> bool:
    """Return whether a pass has trained, on batches that are not all the same."""
    return one.has_trained and max(Counter(one.batches).values()) < len(one.batches)


def _contents(batch: Any) -> int:
    """Return a number that is the same for batches with the same contents."""
    if isinstance(batch, torch.Tensor):
        if batch.device.type != "cpu" or type(batch) is not torch.Tensor or batch.layout != torch.strided:
            return 0
        return hash((tuple(batch.shape), batch.contiguous().view(-1).view(torch.uint8).numpy().tobytes()))
    if isinstance(batch, dict):
        return hash(tuple((name, _contents(value)) for name, value in batch.items()))
    if isinstance(batch, (list, tuple)):
        return hash(tuple(map(_contents, batch)))
    return hash(batch) if isinstance(batch, (int, float, str, bytes)) else 0
