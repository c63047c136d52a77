"""Unlike calls: collectives that match for torch, and that ranks call for different things.

Torch matches calls by their order, size and type.  Two calls of one size that a rank makes in the opposite
order exchange their values in silence, and so does a matrix that a rank holds transposed.  Here the lines
from which the script calls are compared, and the shapes; of what DDP and FSDP call, the models.  Lines
under a condition on ranks are left alone, as ranks may well call one collective from different lines, and so
are those that make torch call, such as a backward pass of a loss that is dropped on some ranks; so are shapes
of fewer than two dimensions, as a tensor may well be flat on a rank.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from collectives.execution.blame import ranks_by, spell_ranks
from collectives.virtual.diagnosis.calling_models import CallingModels
from collectives.virtual.diagnosis.places import is_under_rank_condition
from collectives.virtual.diagnosis.watched_calls import WatchedCall

_COMPARED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
_WITHOUT_ROOT = _COMPARED[:4]
_MAX_PENDING = 64


@dataclass(frozen=True)
class _Seen:
    """A call as one rank makes it: its operation, its line, the shape of what it passes, the model."""

    operation: str
    place: str
    shape: tuple[int, ...]
    is_conditional: bool
    model: str

    @property
    def source(self) -> str:
        """What is compared of it: the model, or else the line."""
        return self.model or self.place

    @property
    def says(self) -> str:
        """What it does, in words."""
        return f"calls {self.operation} for its {self.model}" if self.model else f"calls {self.operation}"


class UnlikeCalls:
    """Compares the calls of the ranks of each group of one run."""

    def __init__(self, models: CallingModels) -> None:
        self._models = models
        self._counts: Counter[tuple[Hashable, int]] = Counter()
        self._pending: defaultdict[Hashable, dict[int, dict[int, _Seen]]] = defaultdict(dict)
        self._last: dict[Hashable, dict[int, _Seen]] = {}
        self._found: dict[Hashable, str] = {}

    def mistakes(self) -> Iterator[str]:
        """Yield what was found."""
        yield from self._found.values()

    def began(self, call: WatchedCall) -> None:
        """Compare *call* with those of the other ranks, once all have made it."""
        tensors = call.wanted or call.given
        if call.operation not in _COMPARED or not tensors:
            return
        key = call.key
        rank = call.rank_thread.rank
        number = self._counts[key, rank]
        self._counts[key, rank] += 1
        pending = self._pending[key]
        seen = pending.setdefault(number, {})
        shape = tuple(size for size in tensors[0].shape if size > 1)
        model = self._models.of(call)
        is_conditional = not model and (not call.is_users or is_under_rank_condition(call.caller))
        seen[rank] = _Seen(call.operation, call.place, shape, is_conditional, model)
        if len(seen) == call.group.size():
            del pending[number]
            self._compare(self._last.get(key, {}), seen)
            self._last[key] = seen
        elif len(pending) > _MAX_PENDING:
            del pending[min(pending)]

    def _compare(self, before: dict[int, _Seen], now: dict[int, _Seen]) -> None:
        operations = {one.operation for one in now.values()}
        if len(operations) > 1:
            return
        self._compare_shapes(now)
        if operations <= set(_WITHOUT_ROOT) and before.keys() == now.keys():
            self._compare_order(before, now)

    def _compare_shapes(self, now: dict[int, _Seen]) -> None:
        ranks = ranks_by({rank: one.shape for rank, one in now.items()})
        if len(ranks) < 2 or min(map(len, ranks)) < 2 or len({math.prod(shape) for shape in ranks}) > 1:
            return
        usual, *others = sorted(ranks, key=lambda shape: -len(ranks[shape]))
        for shape in others:
            one = now[ranks[shape][0]]
            self._found.setdefault(
                (one.place, shape, usual),
                f"{one.place}: {spell_ranks(ranks[shape])} passes {one.operation} a tensor of shape "
                f"{_spell(shape)}, {spell_ranks(ranks[usual])} of shape {_spell(usual)}; as many elements, "
                "so what is meant for one place goes to another",
            )

    def _compare_order(self, before: dict[int, _Seen], now: dict[int, _Seen]) -> None:
        """Find ranks that come from line A to line B where others come from B to A."""
        ways: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for rank in now:
            first, second = before[rank], now[rank]
            are_alike = first.operation == second.operation or bool(first.model and second.model)
            if are_alike and not (first.is_conditional or second.is_conditional):
                ways[first.source, second.source].append(rank)
        for way, ranks in ways.items():
            others = ways.get((way[1], way[0]), [])
            if way[0] != way[1] and others and (len(ranks), -min(ranks)) < (len(others), -min(others)):
                first, second = before[ranks[0]], now[ranks[0]]
                self._found.setdefault(
                    frozenset(way),
                    f"{first.place}: {spell_ranks(ranks)} {first.says} here and then "
                    f"{f'for its {second.model} ' if second.model else ''}at {second.place}, "
                    f"{spell_ranks(others)} in the opposite order; calls are matched by their order, so each "
                    "gets what is meant for the other",
                )


def _spell(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
