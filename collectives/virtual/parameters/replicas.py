"""Replicas that part: ranks that hold the same parameters, and after some step no longer do.

Which ranks hold replicas follows from what they hold.  Shards of DTensors: where the mesh has them
replicated.  All else: models that are the same to the bit on several ranks before the first step, as
data parallelism makes them.  Models whose first gradients agree and whose parameters do not have begun
differently: someone averages gradients and has not made the models alike.

What is beside the parameters is compared where they are replicas and stay alike: what optimizers keep of
them, buffers that are alike in the beginning, loss scalers; scalers also of ranks that hold other shards.

Every rank of a data-parallel run computes its step from the same gradient by the same operations, so the
comparison is of bits.  A script that lets replicas part on purpose, such as local SGD, is reported too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collectives.execution.blame import ranks_by, spell_ranks
from collectives.virtual.parameters.held import Held
from collectives.virtual.parameters.record import ModelKey, ParameterRecord, Snapshots
from collectives.virtual.parameters.state import StateName

_SHOWN_NAMES = 3

Parameters = Mapping[str, Held]
Groups = Sequence[tuple[Sequence[str], tuple[int, ...]]]
"""Names of parameters, with the ranks that hold them alike in the beginning."""
Series = Mapping[int | None, Mapping[Any, Held]]
"""What a rank holds, by name, before each iteration, by how many it had finished; None: in the end."""


@dataclass(frozen=True)
class ReplicaCheck:
    """What has been found.

    Attributes:
        compared: which ranks were compared in what, in words.
        violations: which parted, when, in words.
        not_compared: what ranks need not have alike, and why, in words.
    """

    compared: tuple[str, ...]
    violations: tuple[str, ...]
    not_compared: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there were replicas, or all was sharded, and what there was stayed alike."""
        return bool(self.compared or self.not_compared) and not self.violations

    @property
    def text(self) -> str:
        """What has been found, in lines."""
        if self.violations:
            return "\n".join(self.violations)
        if not (self.compared or self.not_compared):
            return (
                "replicas: no two ranks hold the same parameters, so nothing was compared; a model is known "
                "once it is called as a module, or an optimizer has its parameters"
            )
        alike = [f"Replicas stayed alike to the bit: {'; '.join(self.compared)}"] if self.compared else []
        return "\n".join([*alike, *(f"Not compared: {text}" for text in self.not_compared)])

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {**asdict(self), "holds": self.holds}


def check_replicas(record: ParameterRecord) -> ReplicaCheck:
    """Return which replicas there were in a run, and which parted."""
    compared: list[str] = []
    violations: list[str] = []
    not_compared: list[str] = []
    for key, by_rank in record.models.items():
        for alike in _of_one_structure(by_rank):
            groups = list(_replicas(alike))
            violations += (
                _began_differently(key, alike)
                or [text for names, ranks in groups for text in _parted(key, alike, names, ranks)]
                or _parted_beside(key, alike, groups)
            )
            for ranks in dict.fromkeys(ranks for _, ranks in groups):
                steps = max(len(alike[rank].gradients) for rank in ranks)
                compared.append(f"{_model(key)} on {spell_ranks(ranks)}, {steps} steps")
            not_compared += _not_compared(key, alike, groups)
    return ReplicaCheck(*(tuple(dict.fromkeys(own)) for own in (compared, violations, not_compared)))


def _of_one_structure(by_rank: Mapping[int, Snapshots]) -> Iterator[dict[int, Snapshots]]:
    """Yield those ranks together whose models have parameters of the same names, shapes and types."""
    structures: defaultdict[object, dict[int, Snapshots]] = defaultdict(dict)
    for rank, snapshots in sorted(by_rank.items()):
        structure = tuple(
            (name, own.shape if own.placed is None else own.placed.shape, own.dtype)
            for name, own in _first(snapshots).items()
        )
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
    yield from (tuple(ranks) for ranks in ranks_by(kinds).values() if len(ranks) > 1)


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
    series: dict[int, Series] = {
        rank: dict([*by_rank[rank].before.items(), (None, by_rank[rank].at_end)]) for rank in ranks
    }
    found = _first_difference(series, names)
    if found is not None:
        finished, there, differing = found
        yield _spell(key, by_rank, there, differing, finished)


def _parted_beside(key: ModelKey, by_rank: Mapping[int, Snapshots], groups: Groups) -> list[str]:
    """Return in words where ranks whose parameters stay alike part first in what is beside these."""
    texts = []
    for names, ranks in _beside(by_rank, groups):
        found = _first_difference({rank: by_rank[rank].state for rank in ranks}, names)
        if found is not None:
            finished, there, differing = found
            texts.append(_head(key, by_rank, there, differing, finished))
    return texts


def _beside(
    by_rank: Mapping[int, Snapshots], groups: Groups
) -> Iterator[tuple[list[StateName], tuple[int, ...]]]:
    """Yield names of what is beside the parameters with ranks that should have it alike."""
    known = dict.fromkeys(
        name for snapshots in by_rank.values() for held in snapshots.state.values() for name in held
    )
    for names, ranks in groups:
        yield [name for name in known if name.parameter in names], ranks
    for ranks in _of_one_model(by_rank, groups):
        yield [name for name in known if not (name.parameter or name.is_buffer)], ranks
        buffers: defaultdict[tuple[int, ...], list[StateName]] = defaultdict(list)
        for name in known:
            if name.is_buffer:
                for alike in _alike(_first_digests(by_rank, ranks, name)):
                    buffers[alike].append(name)
        yield from ((names, alike) for alike, names in buffers.items())


def _of_one_model(by_rank: Mapping[int, Snapshots], groups: Groups) -> list[tuple[int, ...]]:
    """Return which ranks train one model together: those with the same parameters, or its shards."""
    if _is_sharded(by_rank):
        return [tuple(by_rank)]
    return [ranks for names, ranks in groups if _first(by_rank[ranks[0]])[names[0]].placed is None]


def _is_sharded(by_rank: Mapping[int, Snapshots]) -> bool:
    """Return whether all parameters of a model are divided among ranks."""
    return all(own.placed is not None for snapshots in by_rank.values() for own in _first(snapshots).values())


def _first_digests(
    by_rank: Mapping[int, Snapshots], ranks: Iterable[int], name: StateName
) -> dict[int, bytes]:
    """Return the digest of a buffer on each rank in the beginning."""
    first = {rank: next(iter(by_rank[rank].state.values()), {}) for rank in ranks}
    return {rank: held[name].digest for rank, held in first.items() if name in held}


def _not_compared(key: ModelKey, by_rank: Mapping[int, Snapshots], groups: Groups) -> Iterator[str]:
    """Yield in words what ranks need not have alike."""
    if not groups and _is_sharded(by_rank):
        meshes = {own.placed.mesh for own in _first(next(iter(by_rank.values()))).values() if own.placed}
        shards = "FSDP1 shards" if any("FSDP1" in names for names, _ in meshes) else "shards"
        yield f"{_model(key)} on {spell_ranks(tuple(by_rank))}: {shards}, of which no two ranks hold the same"
    for ranks in _of_one_model(by_rank, groups):
        snapshots = by_rank[ranks[0]]
        for why, names in snapshots.left_out.items():
            yield f"{_model(key)}: {_names(names)}: {why}"
        differing = [
            name.what
            for name in next(iter(snapshots.state.values()), {})
            if name.is_buffer and len(set(_first_digests(by_rank, ranks, name).values())) > 1
        ]
        if differing:
            yield f"{_model(key)}: {_names(differing)}: ranks begin with different ones"


def _first_difference(
    series: Mapping[int, Series], names: Sequence[Any]
) -> tuple[int | None, dict[int, Mapping[Any, Held]], list[Any]] | None:
    """Return when ranks first differ in some of *names*, what they hold then, and those names."""
    steps = sorted({step for own in series.values() for step in own if step is not None})
    for step in (*steps, None):
        there = {rank: own[step] for rank, own in series.items() if own.get(step)}
        differing = _differing(there, names)
        if differing:
            return step, there, differing
    return None


def _spell(
    key: ModelKey,
    by_rank: Mapping[int, Snapshots],
    there: Mapping[int, Parameters],
    differing: Sequence[str],
    finished: int | None,
) -> str:
    """Return in words which ranks differ in which parameters, after how many steps, and why."""
    step = _step(by_rank, there, finished)
    name = differing[0]
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
    return f"{_head(key, by_rank, there, differing, finished)}; {why}"


def _head(
    key: ModelKey,
    by_rank: Mapping[int, Snapshots],
    there: Mapping[int, Mapping[Any, Held]],
    differing: Sequence[Any],
    finished: int | None,
) -> str:
    """Return in words which ranks differ in what, after how many steps; arguments as in `_spell`."""
    step = _step(by_rank, there, finished)
    place = next((by_rank[rank].places[step - 1] for rank in there if step - 1 in by_rank[rank].places), "")
    parts = " and ".join(spell_ranks(part) for part in _ranks_by_digest(there, differing[0]))
    return (
        f"{_model(key)}: replicas part in step {step}{_at(place)}, in {_names(differing)}; of {differing[0]} "
        f"{parts} hold different values"
    )


def _step(by_rank: Mapping[int, Snapshots], there: Iterable[int], finished: int | None) -> int:
    return max(len(by_rank[rank].gradients) for rank in there) if finished is None else finished


def _differing(there: Mapping[int, Mapping[Any, Held]], names: Iterable[Any]) -> list[Any]:
    """Return those of *names* of which ranks hold different bits, of those that hold the same part."""
    return [
        name
        for name in names
        if len({own[name].digest for own in there.values() if name in own}) > 1
        and len({own[name].kind for own in there.values() if name in own}) == 1
    ]


def _ranks_by_digest(there: Mapping[int, Mapping[Any, Held]], name: Any) -> list[list[int]]:
    parts = ranks_by({rank: own[name].digest for rank, own in there.items() if name in own})
    return sorted(parts.values(), key=lambda ranks: (-len(ranks), ranks))


def _first(snapshots: Snapshots) -> Parameters:
    return snapshots.before[min(snapshots.before)] if snapshots.before else snapshots.at_end


def _first_gradients(snapshots: Snapshots) -> Parameters:
    return snapshots.gradients[min(snapshots.gradients)] if snapshots.gradients else {}


def _model(key: ModelKey) -> str:
    name, number = key
    return name if number == 0 else f"{name} (number {number + 1})"


def _names(names: Sequence[object]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(str, names[:_SHOWN_NAMES])) + more


def _at(place: str) -> str:
    return f" ({place})" if place else ""
