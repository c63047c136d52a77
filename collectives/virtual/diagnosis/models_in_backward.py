"""Models in backward: of which of a rank's DDP models the gradients are that are reduced now.

Torch's reducer calls its process group from within the autograd engine, where no frame tells the model.  The
outputs of a rank's models do: when a backward pass comes to one, it is in that model.  Only ranks that make
two models are followed, and a pass through several of them tells none.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.isolation.patching import replaced
from sim.cluster import current_rank_thread

_core: Any = torch._C


class ModelsInBackward:
    """The DDP models of the ranks of one run, numbered from 1 as each rank makes them."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._entered: dict[int, tuple[int, set[int]]] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        made: Any = DistributedDataParallel.__init__
        forward: Any = DistributedDataParallel.forward

        def watched_made(model: Any, *args: Any, **kwargs: Any) -> None:
            made(model, *args, **kwargs)
            rank_thread = current_rank_thread()
            if rank_thread is not None:
                self._made[rank_thread.rank] += 1
                self._numbers[model] = self._made[rank_thread.rank]

        def watched_forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(model, *args, **kwargs)
            rank_thread = current_rank_thread()
            if rank_thread is not None and self._made[rank_thread.rank] > 1 and torch.is_grad_enabled():
                self._follow(rank_thread.rank, self._numbers.get(model, 0), output)
            return output

        with replaced(
            [
                (DistributedDataParallel, "__init__", watched_made),
                (DistributedDataParallel, "forward", watched_forward),
            ]
        ):
            yield

    def number(self, rank: int) -> int | None:
        """Return which model the backward pass that runs on *rank* is in; None if that is not known."""
        task, numbers = self._entered.get(rank, (-1, set()))
        is_one = task == _core._current_graph_task_id() and len(numbers) == 1
        return next(iter(numbers)) if is_one else None

    def _follow(self, rank: int, number: int, output: Any) -> None:
        def enter(_: torch.Tensor) -> None:
            task = _core._current_graph_task_id()
            if self._entered.get(rank, (-1, set()))[0] != task:
                self._entered[rank] = task, set()
            self._entered[rank][1].add(number)

        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(enter)
