"""Readiness of gradients where not every parameter takes part in every pass.

Three rules, chosen by the arguments of `DistributedDataParallel`:

- by default a gradient is ready when it has been accumulated, and each must be (no object here);
- ``find_unused_parameters``: parameters that the graph of the outputs does not reach are ready as
  soon as the backward pass reaches any, and those that it does not reach after all, at its end;
- ``static_graph``: in the first pass accumulations are counted, and everything is reduced at its
  end; from then on a gradient is ready after as many accumulations, the unused ones at once.

Where a rank has used a parameter and another has not, both get the average.  One that no rank has
used keeps its gradient as it is, mostly None; so ranks add up who used what (`unused_everywhere`).

Source: torch/csrc/distributed/c10d/reducer.cpp (search_unused_parameters, autograd_hook).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ddp.errors import GraphChangedError, UnfinishedReductionError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator


STATIC_GRAPH_LACKS = (
    "This error indicates that your training graph has changed in this iteration, e.g., one parameter is "
    "used in first iteration, but then got unused in the second iteration. this is not compatible with "
    "static_graph set to True."
)
"""Torch's words where a gradient has come less often than in the first pass."""


class Readiness(Protocol):
    """Decides when gradients count as ready."""

    @property
    def surely_unused(self) -> frozenset[int]:
        """Parameters known to be unused before the pass has ended."""

    @property
    def num_users(self) -> Sequence[int]:
        """On how many ranks each parameter was used before the latest reduction; empty before the first."""

    @property
    def graph_has_changed(self) -> bool:
        """Whether other parameters were unused in some pass than in the one before it."""

    def forward_ended(self, outputs: Sequence[torch.Tensor]) -> None:
        """Take note of a forward pass whose backward pass is reduced."""

    def kept(self, index: int) -> None:
        """Take note of an accumulation in a pass that is not reduced."""

    def accumulated(self, index: int) -> Iterable[int]:
        """Return which gradients are ready now, in this order."""

    def pass_ended(self) -> Iterable[int]:
        """Return which gradients are ready only because the pass is over."""

    def add_up(self, communicator: Communicator, device: torch.device) -> None:
        """Start to add up who has used what since the last reduction; a collective call."""

    def unused_everywhere(self) -> frozenset[int]:
        """Return the parameters that no rank has used, once that has been added up."""

    def reset(self) -> None:
        """Start the next pass anew."""


class FindUnused:
    """The rule of ``find_unused_parameters``.

    The graph is searched after the forward pass.  If several forward passes precede the backward
    pass, or part of the graph is built only in it (re-entrant checkpoints), what is unused is known
    at the end of the pass only: torch reports an error there.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = parameters
        self._index_of = {id(parameter): index for index, parameter in enumerate(parameters)}
        self._used = [False] * len(parameters)
        self._counts: UserCounts | None = None
        self.num_users: Sequence[int] = ()
        self._num_forwards = 0
        self._searched: frozenset[int] | None = None
        self.graph_has_changed = False
        self.surely_unused: frozenset[int] = frozenset()
        self._ready: set[int] = set()

    def forward_ended(self, outputs: Sequence[torch.Tensor]) -> None:
        """Search the graph, if it is the only one."""
        self._num_forwards += 1
        alone = self._num_forwards == 1
        self.surely_unused = _unreached(outputs, self._index_of) if alone else frozenset()
        if self._searched is not None and self.surely_unused != self._searched:
            self.graph_has_changed = True
        self._searched = self.surely_unused

    def kept(self, index: int) -> None:
        """Count it: what was used in any pass since the last reduction was used."""
        self._note_use(index)

    def accumulated(self, index: int) -> Iterable[int]:
        """Return it, and before the first one those that are surely unused."""
        self._note_use(index)
        ready = [index] if self._ready else [*sorted(self.surely_unused - {index}), index]
        self._ready.update(ready)
        return ready

    def pass_ended(self) -> Iterable[int]:
        """Return all that have not been ready before."""
        return [index for index in range(len(self._used)) if index not in self._ready]

    def add_up(self, communicator: Communicator, device: torch.device) -> None:
        """Start to add up who has used what since the last reduction."""
        self._counts = UserCounts(self._used, communicator, device)
        self._used = [False] * len(self._used)

    def unused_everywhere(self) -> frozenset[int]:
        """Return what no rank has used."""
        assert self._counts is not None, "nothing has been added up"
        self.num_users = self._counts.wait()
        return _without_users(self.num_users)

    def _note_use(self, index: int) -> None:
        """Take note of an accumulation; autograd tells of gradients that are undefined, too."""
        if self._parameters[index].grad is not None:
            self._used[index] = True

    def reset(self) -> None:
        """Forget the graph and the pass."""
        self._num_forwards = 0
        self.surely_unused = frozenset()
        self._ready.clear()


class StaticGraph:
    """The rule of ``static_graph``."""

    def __init__(self, names: Sequence[str], parameters: Sequence[Parameter]) -> None:
        self._names = names
        self._parameters = parameters
        self._num_accumulations: Counter[int] = Counter()
        self._order: dict[int, None] = {}
        self._counting = True
        self._begun = False
        self._left: Counter[int] = Counter()
        self._counts: UserCounts | None = None
        self.num_users: Sequence[int] = ()
        self.graph_has_changed = False
        self.surely_unused: frozenset[int] = frozenset()

    def forward_ended(self, outputs: Sequence[torch.Tensor]) -> None:
        """Do nothing: the graph is the one of the first pass."""

    def kept(self, index: int) -> None:
        """Do nothing: the graph is the one of the first pass."""

    def accumulated(self, index: int) -> Iterable[int]:
        """Count; after the first pass return it after as many accumulations as there."""
        if self._counting:
            self._num_accumulations[index] += 1
            self._order.pop(index, None)
            self._order[index] = None
            return ()
        ready = [] if self._begun else sorted(self.surely_unused)
        self._begun = True
        self._left[index] -= 1
        if self._left[index] < 0:
            self.graph_has_changed = True
            raise GraphChangedError(
                "Your training graph has changed in this iteration, e.g., one parameter is unused in first "
                "iteration, but then got used in the second iteration. this is not compatible with "
                f"static_graph set to True: {self._names[index]} got a gradient more often than in the first "
                "pass; use find_unused_parameters=True"
            )
        if self._left[index] == 0:
            ready.append(index)
        return ready

    def pass_ended(self) -> Iterable[int]:
        """Return all at the end of the first pass; afterwards none may be left."""
        if self._counting:
            self._counting = False
            unused = [index for index in range(len(self._names)) if index not in self._order]
            self.surely_unused = frozenset(unused)
            return [*self._order, *unused]
        missing = [index for index, left in self._left.items() if left > 0]
        if missing:
            self.graph_has_changed = True
            raise UnfinishedReductionError(STATIC_GRAPH_LACKS, missing)
        return ()

    def add_up(self, communicator: Communicator, device: torch.device) -> None:
        """Start to add up who used what in the first pass; it stays so."""
        if self._counts is None:
            used = [
                index not in self.surely_unused and parameter.grad is not None
                for index, parameter in enumerate(self._parameters)
            ]
            self._counts = UserCounts(used, communicator, device)

    def unused_everywhere(self) -> frozenset[int]:
        """Return what no rank used in the first pass."""
        assert self._counts is not None, "nothing has been added up"
        self.num_users = self._counts.wait()
        return _without_users(self.num_users)

    def reset(self) -> None:
        """Expect as many accumulations again."""
        self._begun = False
        self._left = self._num_accumulations.copy()


class NothingToDo:
    """The reduction of a bucket of which nothing is used; a `collectives.execution.work.Work`."""

    completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""

    def is_completed(self) -> bool:
        """Return True."""
        return True


class UserCounts:
    """On how many ranks each parameter was used, being added up.

    Args:
        used: whether each was, on this rank.
        communicator: between the ranks.
        device: on which they are added up.
    """

    def __init__(self, used: Sequence[bool], communicator: Communicator, device: torch.device) -> None:
        self._counts = torch.tensor(used, dtype=torch.int32, device=device)
        self._work = communicator.all_reduce(self._counts, op="sum", async_op=True)

    def wait(self) -> list[int]:
        """Return them."""
        self._work.wait()
        own: list[int] = self._counts.tolist()
        return own


def _without_users(num_users: Sequence[int]) -> frozenset[int]:
    return frozenset(index for index, count in enumerate(num_users) if not count)


def _unreached(outputs: Sequence[torch.Tensor], index_of: dict[int, int]) -> frozenset[int]:
    """Return the parameters that the graph of *outputs* does not reach; none if not all of it is known."""
    left = set(range(len(index_of)))
    left -= {index_of[id(output)] for output in outputs if id(output) in index_of}
    stack: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    if not stack and len(left) == len(index_of):
        return frozenset()
    seen = set(stack)
    while stack and left:
        node = stack.pop()
        if type(node).__name__ == "CheckpointFunctionBackward":
            return frozenset()
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            left.discard(index_of.get(id(parameter), -1))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)
    return frozenset(left)
