"""Replicas that part: ranks that hold the same parameters, and after some step no longer do.

Which ranks hold replicas follows from what they hold.  Shards of DTensors: where the mesh has them
replicated.  All else: models that are the same to the bit on several ranks before the first step, as
data parallelism makes them.  Models whose first gradients agree and whose parameters do not have begun
differently: someone averages gradients and has not made the models alike.

Every rank of a data-parallel run computes its step from the same gradient by the same operations, so the
comparison is of bits.  A script that lets replicas part on purpose, such as local SGD, is reported too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collectives.execution.blame import spell_ranks
from collectives.virtual.parameters.held import Held
from collectives.virtual.parameters.record import ModelKey, ParameterRecord, Snapshots

_SHOWN_NAMES = 3

Parameters = Mapping[str, Held]


@dataclass(frozen=True)
class ReplicaCheck:
    """What has been found.

    Attributes:
        compared: which ranks were compared in what, in words.
        violations: which parted, when, in words.
    """

    compared: tuple[str, ...]
    violations: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether there were replicas, and all stayed alike."""
        return bool(self.compared) and not self.violations

    @property
    def text(self) -> str:
        """What has been found, in lines."""
        if self.violations:
            return "\n".join(self.violations)
        if not self.compared:
            return (
                "replicas: no two ranks hold the same parameters, so nothing was compared; a model is known "
                "once it is called as a module, or an optimizer has its parameters"
            )
        return f"Replicas stayed alike to the bit: {'; '.join(self.compared)}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {**asdict(self), "holds": self.holds}


def check_replicas(record: ParameterRecord) -> ReplicaCheck:
    """Return which replicas there were in a run, and which parted."""
    compared: list[str] = []
    violations: list[str] = []
    for key, by_rank in record.models.items():
        for alike in _of_one_structure(by_rank):
            started = _began_differently(key, alike)
            groups = list(_replicas(alike))
            violations += started or [
                text for names, ranks in groups for text in _parted(key, alike, names, ranks)
            ]
            for ranks in dict.fromkeys(ranks for _, ranks in groups):
                steps = max(len(alike[rank].gradients) for rank in ranks)
                compared.append(f"{_model(key)} on {spell_ranks(ranks)}, {steps} steps")
    return ReplicaCheck(tuple(dict.fromkeys(compared)), tuple(violations))


def _of_one_structure(by_rank: Mapping[int, Snapshots]) -> Iterator[dict[int, Snapshots]]:
    """Yield those ranks together whose models have parameters of the same names, shapes and types."""
    structures: defaultdict[object, dict[int, Snapshots]] = defaultdict(dict)
    for rank, snapshots in sorted(by_rank.items()):
        structure = tuple((name, own.shape, own.dtype) for name, own in _first(snapshots).items())
        structures[structure][rank] = snapshots
    yield from (ranks for ranks in structures.values() if len(ranks) > 1)


def _replicas(by_rank: Mapping[int, Snapshots]) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Yield names of parameters with the ranks that hold them alike in the beginning."""
    first = {rank: _first(snapshots) for rank, snapshots in by_rank.items()}
    names = next(iter(first.values()))
    whole = tuple(name for name in names if all(own[name].placed is None for own in first.values()))
    if whole:
        for ranks in _alike({rank: tuple(own[name].digest for name in whole) for rank, own in first.items()}):
            yield whole, ranks
    shards: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for name in names:
        if name not in whole:
            for ranks in _alike({rank: own[name].kind for rank, own in first.items()}):
                shards[ranks].append(name)
    for ranks, sharded in shards.items():
        yield tuple(sharded), ranks


def _alike(kinds: Mapping[int, Hashable]) -> Iterator[tuple[int, ...]]:
    """Yield the ranks that are of one kind, where there are several."""
    ranks_of: defaultdict[Hashable, list[int]] = defaultdict(list)
    for rank, kind in kinds.items():
        ranks_of[kind].append(rank)
    yield from (tuple(ranks) for ranks in ranks_of.values() if len(ranks) > 1)


def _began_differently(key: ModelKey, by_rank: Mapping[int, Snapshots]) -> list[str]:
    """Return that models differ although their first gradients agree, if they do."""
    first = [_first(snapshots) for snapshots in by_rank.values()]
    gradients = [_first_gradients(snapshots) for snapshots in by_rank.values()]
    names = [name for name, own in gradients[0].items() if own.placed is None]
    if all(gradients[0][name].is_zero for name in names):
        return []
    if any(own.keys() != gradients[0].keys() for own in gradients):
        return []
    if any(own[name].digest != gradients[0][name].digest for own in gradients for name in names):
        return []
    differing = [name for name in names if len({own[name].digest for own in first}) > 1]
    if not differing:
        return []
    place = next(iter(next(iter(by_rank.values())).places.values()), "")
    return [
        f"{_model(key)}: {spell_ranks(tuple(by_rank))} step by the same gradients and began with different "
        f"parameters ({_names(differing)}){_at(place)}; make them alike before the first step: the same seed "
        "on every rank, a broadcast from rank 0, or DistributedDataParallel"
    ]


def _parted(
    key: ModelKey, by_rank: Mapping[int, Snapshots], names: Sequence[str], ranks: Sequence[int]
) -> Iterator[str]:
    """Yield in words where the replicas on *ranks* of the parameters *names* part first, if they do."""
    steps = sorted({step for rank in ranks for step in by_rank[rank].before})
    for step in steps:
        there = {rank: by_rank[rank].before[step] for rank in ranks if step in by_rank[rank].before}
        differing = _differing(there, names)
        if differing:
            yield _spell(key, by_rank, there, differing, step)
            return
    at_end = {rank: by_rank[rank].at_end for rank in ranks if by_rank[rank].at_end}
    differing = _differing(at_end, names)
    if differing:
        yield _spell(key, by_rank, at_end, differing, None)


def _spell(
    key: ModelKey,
    by_rank: Mapping[int, Snapshots],
    there: Mapping[int, Parameters],
    differing: Sequence[str],
    finished: int | None,
) -> str:
    """Return in words which ranks differ in which parameters, after how many steps, and why.

    Args:
        key: of the model.
        by_rank: all that was recorded of it.
        there: what ranks hold there.
        differing: the parameters that differ.
        finished: how many iterations ranks had finished; None: all.
    """
    step = max(len(by_rank[rank].gradients) for rank in there) if finished is None else finished
    name = differing[0]
    parts = _ranks_by_digest(there, name)
    gradients = {
        rank: own[name] for rank in there if name in (own := by_rank[rank].gradients.get(step - 1, {}))
    }
    if len(gradients) < len(there):
        missing = [rank for rank in there if rank not in gradients]
        why = f"{spell_ranks(missing)} had no gradient of {name} in that step"
    elif len({own.digest for own in gradients.values()}) > 1:
        why = f"their gradients of {name} differ in that step: not all of it was averaged"
    else:
        why = f"their gradients of {name} are the same: it was changed otherwise, or the optimizers differ"
    place = next((by_rank[rank].places[step - 1] for rank in there if step - 1 in by_rank[rank].places), "")
    return (
        f"{_model(key)}: replicas part in step {step}{_at(place)}, in {_names(differing)}; of {name} "
        f"{' and '.join(spell_ranks(part) for part in parts)} hold different values; {why}"
    )


def _differing(there: Mapping[int, Parameters], names: Iterable[str]) -> list[str]:
    """Return those of *names* of which ranks hold different bits, of those that hold the same part."""
    return [
        name
        for name in names
        if len({own[name].digest for own in there.values() if name in own}) > 1
        and len({own[name].kind for own in there.values() if name in own}) == 1
    ]


def _ranks_by_digest(there: Mapping[int, Parameters], name: str) -> list[list[int]]:
    parts: defaultdict[bytes, list[int]] = defaultdict(list)
    for rank, own in there.items():
        if name in own:
            parts[own[name].digest].append(rank)
    return sorted(parts.values(), key=lambda ranks: (-len(ranks), ranks))


def _first(snapshots: Snapshots) -> Parameters:
    return snapshots.before[min(snapshots.before)] if snapshots.before else snapshots.at_end


def _first_gradients(snapshots: Snapshots) -> Parameters:
    return snapshots.gradients[min(snapshots.gradients)] if snapshots.gradients else {}


def _model(key: ModelKey) -> str:
    name, number = key
    return name if number == 0 else f"{name} (number {number + 1})"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _at(place: str) -> str:
    return f" ({place})" if place else ""
