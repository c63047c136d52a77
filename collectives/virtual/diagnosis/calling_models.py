"""Models for which torch makes calls: which of a rank's models a call of DDP or FSDP is for.

Torch's reducer calls its process group from within the autograd engine, where no frame tells the model.  The
outputs of a rank's models do: when a backward pass comes to one, it is in that model.  Only ranks that make
two models are followed, and a pass through several of them tells none.  FSDP2 gathers and reduces the
parameters of one module at a time.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.isolation.patching import observed, replaced
from sim.cluster import RankThread, current_rank_thread

_fsdp: Any = _fsdp_param_group
_FsdpGroup = _fsdp.FSDPParamGroup
_FSDP_CALLS = ("foreach_all_gather", "foreach_reduce")
_core: Any = torch._C


class CallingModels:
    """The models of DDP, and the modules of FSDP, of one run, numbered from 1 as each rank makes them."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._entered: dict[int, tuple[int, set[int]]] = {}
        self._shards_made: Counter[int] = Counter()
        self._shards: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._inside: dict[int, int] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        made, forward = DistributedDataParallel.__init__, DistributedDataParallel.forward
        with replaced(
            [
                (DistributedDataParallel, "__init__", observed(made, after=self._note_made)),
                (DistributedDataParallel, "forward", observed(forward, after=self._note_forward)),
                (_FsdpGroup, "__init__", observed(_FsdpGroup.__init__, after=self._note_shards)),
                *((_fsdp, name, self._calling(getattr(_fsdp, name))) for name in _FSDP_CALLS),
            ]
        ):
            yield

    def _note_made(self, rank_thread: RankThread, _: None, model: Any, *args: Any, **kwargs: Any) -> None:
        self._made[rank_thread.rank] += 1
        self._numbers[model] = self._made[rank_thread.rank]

    def _note_forward(
        self, rank_thread: RankThread, output: Any, model: Any, *args: Any, **kwargs: Any
    ) -> None:
        if self._made[rank_thread.rank] > 1 and torch.is_grad_enabled():
            self._follow(rank_thread.rank, self._numbers.get(model, 0), output)

    def of(self, call: WatchedCall) -> str:
        """Return for which model torch makes *call*, such as ``DDP model 1``; "" if that is not known."""
        rank = call.rank_thread.rank
        if rank in self._inside:
            return f"FSDP module {self._inside[rank]}"
        task, numbers = self._entered.get(rank, (-1, set()))
        is_one = call.is_of_backward and task == _core._current_graph_task_id() and len(numbers) == 1
        return f"DDP model {next(iter(numbers))}" if is_one else ""

    def _note_shards(self, rank_thread: RankThread, _: None, group: Any, *args: Any, **kwargs: Any) -> None:
        self._shards_made[rank_thread.rank] += 1
        for parameter in group.fsdp_params:
            self._shards[parameter] = self._shards_made[rank_thread.rank]

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return *original* of FSDP, whose first argument are parameters, and which calls for them."""

        def called(parameters: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            rank_thread = current_rank_thread()
            number = self._shards.get(parameters[0]) if rank_thread is not None and parameters else None
            if rank_thread is None or number is None:
                return original(parameters, *args, **kwargs)
            self._inside[rank_thread.rank] = number
            try:
                return original(parameters, *args, **kwargs)
            finally:
                del self._inside[rank_thread.rank]

        return called

    def _follow(self, rank: int, number: int, output: Any) -> None:
        def enter(_: torch.Tensor) -> None:
            task = _core._current_graph_task_id()
            if self._entered.get(rank, (-1, set()))[0] != task:
                self._entered[rank] = task, set()
            self._entered[rank][1].add(number)

        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(enter)
