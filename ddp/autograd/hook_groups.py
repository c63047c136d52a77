"""Watches the last gradient of each group only, and takes the others of the group with it.

A hook costs little by itself, but each is Python between two large operations, which have driven its code
and data out of the processor's cache: ten to thirty microseconds.  In a loop a gradient costs one or two.
So once it is known in which order gradients come, those that come one after the other are a group, small
enough that its gradients are still in the cache when they are taken, and the last is its *sentinel*.

Whether the others have come is seen by their ``.grad``: accumulating replaces it or raises its version.
If one has not, the order has changed: from then on every gradient is watched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch.nn import Parameter

from ddp.autograd.backward_pass import Passes

GROUP_BYTES = 2**18
"""A fraction of a second-level cache, of which the layers leave little."""

State: TypeAlias = tuple[torch.Tensor, int] | None


class Watch:
    """Says which gradients are ready when one that is watched has come; at first, just that one.

    Args:
        parameters: whose gradients come.
        passes: are told which to watch.
    """

    def __init__(self, parameters: Sequence[Parameter], passes: Passes) -> None:
        self._parameters = parameters
        self._passes = passes
        self._sentinels: Sentinels | None = None

    def few(self, buckets: Sequence[Sequence[int]], order: Sequence[int], whole: Sequence[bool]) -> None:
        """Watch sentinels only, from the next pass on; see `Sentinels`."""
        self._sentinels = Sentinels(self._parameters, buckets, order, whole)
        self._passes.watch(self._sentinels.watched)

    def all(self) -> Sequence[int]:
        """Watch every gradient; return those that have come unnoticed."""
        if self._sentinels is None:
            return ()
        come, self._sentinels = self._sentinels.come(), None
        self._passes.watch(range(len(self._parameters)))
        return come

    def begin(self) -> None:
        """Begin a pass."""
        if self._sentinels is not None:
            self._sentinels.begin()

    def come_with(self, index: int) -> Sequence[int]:
        """Return which gradients are ready now that one has come."""
        if self._sentinels is None:
            return (index,)
        come = self._sentinels.come_with(index)
        return self.all() if come is None else come

    def unnoticed(self) -> Sequence[int]:
        """Return the gradients that have come by the end of the pass, and whose sentinel has not."""
        return () if self._sentinels is None else self._sentinels.come()

    def end(self) -> Sequence[int]:
        """End the pass; return the gradients that have come twice, unless each was watched."""
        return () if self._sentinels is None else self._sentinels.end()


class Sentinels:
    """The groups of one module's gradients.

    Args:
        parameters: whose gradients come.
        buckets: indices of parameters; a group is in one bucket.
        order: in which gradients have come.
        whole: for each bucket, whether it is one group whatever its size.
        group_bytes: size at which a group is closed.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        buckets: Sequence[Sequence[int]],
        order: Sequence[int],
        whole: Sequence[bool],
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._parameters = parameters
        self._group_bytes = group_bytes
        self._groups: dict[int, list[int]] = {}
        bucket_of = {index: number for number, bucket in enumerate(buckets) for index in bucket}
        members: list[list[int]] = [[] for _ in buckets]
        for index in order:
            members[bucket_of[index]].append(index)
        for own, is_whole in zip(members, whole, strict=True):
            for group in [own] if is_whole else self._split(own):
                self._groups[group[-1]] = group
        self._waiting: set[int] = set()
        self._before: list[State] = []
        self._taken: dict[int, State] = {}

    @property
    def watched(self) -> set[int]:
        """The sentinels."""
        return set(self._groups)

    def begin(self) -> None:
        """Begin a pass: what is in ``.grad`` now has not come in it."""
        self._before = [_state(parameter) for parameter in self._parameters]
        self._waiting = set(range(len(self._parameters)))
        self._taken = {}

    def come_with(self, index: int) -> Sequence[int] | None:
        """Return which gradients have come when that of *index* has; None: not those that used to."""
        group = self._groups.get(index, ())
        return self._take(group) if all(map(self._has_come, group)) else None

    def come(self) -> Sequence[int]:
        """Return the gradients that have come and of which nothing has been said."""
        return self._take([index for index in sorted(self._waiting) if self._has_come(index)])

    def end(self) -> Sequence[int]:
        """End the pass, keep no gradient alive, and return those that have changed since they have come."""
        twice = [index for index, taken in self._taken.items() if self._differs(index, taken)]
        self._before, self._taken = [], {}
        return twice

    def _take(self, group: Iterable[int]) -> Sequence[int]:
        indices = [index for index in group if index in self._waiting]
        self._waiting.difference_update(indices)
        for index in indices:
            self._taken[index] = _state(self._parameters[index])
        return indices

    def _has_come(self, index: int) -> bool:
        return self._differs(index, self._before[index])

    def _differs(self, index: int, state: State) -> bool:
        """Return whether there is a gradient now, and another one than in *state*."""
        grad = self._parameters[index].grad
        return grad is not None and (state is None or state[0] is not grad or state[1] != grad._version)

    def _split(self, members: Sequence[int]) -> list[list[int]]:
        groups: list[list[int]] = [[]]
        size = 0
        for index in members:
            if size >= self._group_bytes:
                groups.append([])
                size = 0
            groups[-1].append(index)
            size += self._parameters[index].nbytes
        return groups


def _state(parameter: Parameter) -> State:
    grad = parameter.grad
    return None if grad is None else (grad, grad._version)
