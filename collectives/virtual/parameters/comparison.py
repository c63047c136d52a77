"""Comparison of two runs of one training on different numbers of ranks: at which step they first part.

A training whose global batch does not depend on how many ranks share it should follow the same path on one
rank and on several, up to rounding.  So the gradients of each step are compared, where ranks agree on them,
and the parameters after it, whole ones put together from shards: the norm of the difference over the norm.

Rounding is no difference, but optimizers that divide by the size of a gradient, such as Adam, make it one
where a gradient is nothing but rounding, as that of a key's bias in attention is.  So elements of parameters
whose gradient is below 1e-6 of the model's largest, in both runs, are left out, and a gradient is measured
by its own norm, or a thousandth of that of the model's greatest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from collectives.virtual.parameters.held import Held
from collectives.virtual.parameters.record import ParameterRecord, Snapshots

_INSIGNIFICANT = 1e-6
"""Of the largest element of a model's gradients: what may be rounding; float32 has 1.2e-7 an addition."""

_LEAST_NORM = 1e-3
"""Of the norm of a model's greatest gradient: by which the difference of a small one is measured."""

_SINGLE_PRECISION = 1e-4
"""Of the norm of a gradient: difference from which it was not computed in 32 bits."""

_HALF_PRECISION = 0.01
"""Of a ratio of norms: difference that numbers of 16 bits do not explain."""

_APART = "ranks of one run no longer hold the same values: testbed run --check replicas says which"

_PARALLEL = 0.999
"""Cosine from which one gradient is said to be a multiple of another."""


@dataclass(frozen=True)
class Difference:
    """How far two runs are apart in a parameter, or in its gradient.

    Attributes:
        step: after how many steps, or for a gradient in which; 0 before the first.
        model: whose.
        parameter: its name.
        is_gradient: whether it is the gradient that differs.
        relative: norm of the difference over the norm of the first; infinite where there is none.
        cause: what its gradients in that step say; "" if nothing.
        place: of the step in the user's code.
    """

    step: int
    model: str
    parameter: str
    is_gradient: bool
    relative: float
    cause: str
    place: str


@dataclass(frozen=True)
class Comparison:
    """What two runs have in common.

    Attributes:
        steps: how many steps each has taken.
        compared: of how many parameters, through how many steps, values were compared.
        parting: where they first are further apart than the tolerance.
        largest: how far they ever are apart; None if nothing could be compared.
        left_out: parameters that could not be compared, and why.
    """

    steps: tuple[int, int]
    compared: tuple[int, int]
    parting: Difference | None
    largest: Difference | None
    left_out: tuple[str, ...]

    @property
    def are_same(self) -> bool:
        """Whether something was compared, all of it is the same, and so is the number of steps."""
        return self.parting is None and self.largest is not None and self.steps[0] == self.steps[1]


def compare(first: ParameterRecord, second: ParameterRecord, tolerance: float) -> Comparison:
    """Return where two runs part.

    Args:
        first: record of a run, with values.
        second: that of another.
        tolerance: largest relative difference that counts as rounding.
    """
    steps = _num_steps(first), _num_steps(second)
    largest: Difference | None = None
    names: set[tuple[str, str]] = set()
    left_out = {
        f"{name}: only in one of the runs": None for name, _ in first.models.keys() ^ second.models.keys()
    }
    last = 0
    for step in range(min(*steps, first.kept_steps, second.kept_steps) + 1):
        found: list[Difference] = []
        for key in first.models.keys() & second.models.keys():
            found += _differences(key[0], first.models[key], second.models[key], step, left_out)
        if found:
            names |= {(own.model, own.parameter) for own in found}
            last = step
            beyond = [own for own in found if own.relative > tolerance]
            worst = max(beyond or found, key=lambda own: (bool(beyond) and own.is_gradient, own.relative))
            if largest is None or worst.relative > largest.relative:
                largest = replace(worst, cause="")
            if beyond:
                return Comparison(steps, (len(names), last), worst, worst, tuple(left_out))
    return Comparison(steps, (len(names), last), None, largest, tuple(left_out))


def _differences(
    model: str,
    first: Mapping[int, Snapshots],
    second: Mapping[int, Snapshots],
    step: int,
    left_out: dict[str, None],
) -> Iterator[Difference]:
    """Yield how far each parameter of a model is apart after *step* steps, and its gradient in the last."""
    ours, others = _whole_after(first, step), _whole_after(second, step)
    gradients, other_gradients = (_whole_gradients(own, step - 1) for own in (first, second))
    largest = max((float(own.abs().max()) for own in gradients.values() if own.numel()), default=0.0)
    norm = max((_norm(own) for own in gradients.values()), default=0.0)
    place = next((own.places[step - 1] for own in second.values() if step - 1 in own.places), "")

    for name, value in ours.items():
        other = others.get(name)
        if value is None or other is None or value.shape != other.shape:
            reason = f"{model}: {name}, of which ranks hold different values, or other parts"
            if step == 0:
                left_out.setdefault(reason)
            elif reason not in left_out:
                yield Difference(step, model, name, False, math.inf, _APART, place)
            continue
        difference = other.double() - value.double()
        gradient, other_gradient = gradients.get(name), other_gradients.get(name)
        cause = ""
        if gradient is not None and other_gradient is not None and gradient.shape == other_gradient.shape:
            cause = _cause(gradient, other_gradient)
            distance = _norm(other_gradient - gradient)
            relative = _ratio(distance, max(_norm(gradient), _LEAST_NORM * norm))
            yield Difference(step, model, name, True, relative, cause, place)
            floor = _INSIGNIFICANT * largest
            difference[(gradient.abs() <= floor) & (other_gradient.abs() <= floor)] = 0
        relative = _ratio(_norm(difference), _norm(value))
        yield Difference(step, model, name, False, relative, cause, place)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))


def _ratio(distance: float, norm: float) -> float:
    if not math.isfinite(distance):
        return math.inf
    return 0.0 if distance == 0 else distance / max(norm, torch.finfo(torch.float64).tiny)


def _cause(ours: Tensor, others: Tensor) -> str:
    """Return in words what the gradients of a parameter say in two runs."""
    norms = _norm(ours), _norm(others)
    if not math.isfinite(sum(norms)):
        return "its gradients are not finite there"
    if not all(norms):
        return (
            "" if norms[0] == norms[1] else f"its gradient is zero in the {'second' if norms[0] else 'first'}"
        )
    cosine = float(ours.double().flatten() @ others.double().flatten()) / (norms[0] * norms[1])
    ratio = norms[1] / norms[0]
    if cosine < _PARALLEL:
        return f"its gradients point in different directions there (cosine {cosine:.3f})"
    if abs(ratio - 1) > _HALF_PRECISION:
        return f"its gradient there is {ratio:.3g} times the first run's"
    if _norm(others - ours) > _SINGLE_PRECISION * norms[0]:
        return "its gradients differ as numbers of 16 bits do there: --tolerance 0.02 lets that pass"
    return "its gradients agree there: it is changed otherwise, or the optimizers differ"


def _num_steps(record: ParameterRecord) -> int:
    """Return how many steps the ranks of a run have taken."""
    own = [
        max(snapshots.places, default=-1) + 1
        for by_rank in record.models.values()
        for snapshots in by_rank.values()
    ]
    return max(own, default=0)


def _whole_after(by_rank: Mapping[int, Snapshots], step: int) -> dict[str, Tensor | None]:
    """Return the whole parameters after *step* steps, as far as ranks hold them together."""
    return _whole(
        {
            rank: snapshots.before.get(step)
            or (snapshots.at_end if step > max(snapshots.before, default=0) else {})
            for rank, snapshots in by_rank.items()
        }
    )


def _whole_gradients(by_rank: Mapping[int, Snapshots], step: int) -> dict[str, Tensor]:
    """Return the whole gradients in a step, those on which ranks agree, or of which they hold shards."""
    there = {rank: snapshots.gradients.get(step, {}) for rank, snapshots in by_rank.items()}
    return {name: value for name, value in _whole(there).items() if value is not None}


def _whole(by_rank: Mapping[int, Mapping[str, Held]]) -> dict[str, Tensor | None]:
    """Return every parameter as a whole; None where the parts do not make one."""
    names = dict.fromkeys(name for held in by_rank.values() for name in held)
    return {name: _put_together([held[name] for held in by_rank.values() if name in held]) for name in names}


def _put_together(parts: list[Held]) -> Tensor | None:
    first = parts[0]
    if first.value is None:
        return None
    if first.placed is None:
        return first.value if len({part.digest for part in parts}) == 1 else None
    whole = torch.zeros(first.placed.shape, dtype=first.value.dtype)
    covered = torch.zeros(first.placed.shape, dtype=torch.bool)
    for part in parts:
        if part.value is None or part.placed is None or part.placed.index is None:
            return None
        index = part.placed.index
        place = tuple(
            torch.tensor(list(own), dtype=torch.long).reshape(
                [-1 if dim == other else 1 for other in range(len(index))]
            )
            for dim, own in enumerate(index)
        )
        whole[place] = part.value
        covered[place] = True
    return whole if bool(covered.all()) else None
