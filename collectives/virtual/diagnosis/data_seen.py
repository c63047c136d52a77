"""Data seen: ranks that average their gradients, and train on the same batches.

Averaging is for gradients of different batches; where two ranks train on the same ones, one of them works for
nothing.  Compared are values: of each iteration the inputs of the first modules that are called in training,
namely the outermost, and the first two that have parameters themselves.  So a model that takes its share of a
common batch inside is left in peace, and so are ranks that share a batch and average nothing, as in tensor
parallelism: a group counts where DDP or FSDP reduce gradients over it, or the script all gradients by itself.
Inputs without values, and those that are one number all over, say nothing.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import dataloader

from collectives.execution.blame import spell_ranks
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.gpu.values import is_virtual, value_of
from collectives.virtual.isolation.patching import replaced
from sim.cluster import current_rank_thread

_ITERATIONS = 4
"""How many iterations of a rank are compared."""
_MODULES = 2
"""How many modules with parameters are looked at in an iteration."""
_ELEMENTS = 1 << 16
"""How many elements of an input."""
_SYSTEMS = tuple(
    f"{Path(torch.__file__).parent}/distributed/{name}/"
    for name in ("fsdp", "_composable", "algorithms/ddp_comm_hooks")
)
"""Code of torch that reduces gradients, and, apart from parameters that it gathers, nothing else."""
_functorch: Any = torch._C._functorch
_iterator: Any = dataloader._BaseDataLoaderIter


@dataclass
class _Seen:
    """What one rank has trained on.

    Attributes:
        inputs: of each iteration, by number: what stands for the values of inputs, None for none.
        modules: how many with parameters have been called in an iteration.
        place: of the loader that batches come from, or else of the call of the model.
        parameters: of the outermost modules, whose gradients the script may reduce.
        reduced: how many elements of gradients the script has reduced in an iteration, by group.
        groups: over which gradients are reduced.
    """

    inputs: defaultdict[int, list[int | None]] = field(default_factory=lambda: defaultdict(list))
    modules: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    place: str = ""
    loader: str = ""
    parameters: dict[nn.Parameter, None] = field(default_factory=dict)
    reduced: defaultdict[tuple[int, tuple[int, ...]], int] = field(default_factory=lambda: defaultdict(int))
    groups: set[tuple[int, ...]] = field(default_factory=set)


class DataSeen:
    """Compares what the ranks of one run train on.

    Args:
        finished: returns how many iterations a rank has finished.
    """

    def __init__(self, finished: Callable[[int], int]) -> None:
        self._finished = finished
        self._seen: defaultdict[int, _Seen] = defaultdict(_Seen)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        next_ = _iterator.__next__

        def watched_next(iterator: Any) -> Any:
            rank_thread = current_rank_thread()
            if (
                rank_thread is not None
                and torch.is_grad_enabled()
                and not self._seen[rank_thread.rank].loader
            ):
                self._seen[rank_thread.rank].loader = current_place()
            return next_(iterator)

        hook = register_module_forward_pre_hook(self._called)
        try:
            with replaced([(_iterator, "__next__", watched_next)]):
                yield
        finally:
            hook.remove()

    def mistakes(self) -> Iterator[str]:
        """Yield which ranks have trained on the same batches."""
        said = set()
        for group in sorted({group for seen in self._seen.values() for group in seen.groups}):
            alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
            for rank in group:
                if (inputs := self._inputs(rank)) is not None:
                    alike[inputs].append(rank)
            for inputs, ranks in alike.items():
                seen = self._seen[ranks[0]]
                place = seen.loader or seen.place
                if len(ranks) > 1 and place not in said:
                    said.add(place)
                    what = "the same batches" if len(set(inputs)) > 1 else "one batch, the same all along"
                    yield (
                        f"{place}: {spell_ranks(ranks)} train on {what}, and their gradients are averaged; "
                        "give each its own, by a DistributedSampler with as many replicas as the group has "
                        "ranks, or by another seed for what draws batches"
                    )

    def began(self, call: WatchedCall) -> None:
        """Note over which group *call* reduces gradients, if it does."""
        seen = self._seen.get(call.rank_thread.rank)
        if seen is None or call.operation not in ("all_reduce", "reduce_scatter"):
            return
        hosts = tuple(getattr(call.group.members, "hosts", ()))
        if call.is_of_backward or call.caller.f_code.co_filename.startswith(_SYSTEMS):
            seen.groups.add(hosts)
        elif call.is_users and hosts not in seen.groups:
            gradients = {id(own.grad): own.numel() for own in seen.parameters if own.grad is not None}
            whole = sum(gradients.values())
            key = self._finished(call.rank_thread.rank), hosts
            for tensor in (*call.given, *call.wanted):
                seen.reduced[key] += gradients.get(id(tensor), whole if tensor.numel() == whole else 0)
            if whole and seen.reduced[key] >= whole:
                seen.groups.add(hosts)

    def _called(self, module: nn.Module, args: Any) -> None:
        rank_thread = current_rank_thread()
        if rank_thread is None or not module.training or not torch.is_grad_enabled():
            return
        rank = rank_thread.rank
        seen, number = self._seen[rank], self._finished(rank)
        has_parameters = bool(module._parameters)
        is_first = number not in seen.modules
        if number >= _ITERATIONS or seen.modules[number] >= _MODULES or not (is_first or has_parameters):
            return
        seen.modules[number] += has_parameters
        if is_first:
            seen.place = seen.place or current_place()
            seen.parameters |= dict.fromkeys(module.parameters())
        seen.inputs[number] += map(_contents, tensors_in(args))

    def _inputs(self, rank: int) -> tuple[tuple[int, ...], ...] | None:
        """Return what stands for the inputs of a rank by iteration; None where that says nothing."""
        if rank not in self._seen:
            return None
        inputs = self._seen[rank].inputs
        finished = min(self._finished(rank), _ITERATIONS)
        known = [tuple(one for one in inputs[number] if one is not None) for number in range(finished)]
        return tuple(known) if len(known) > 1 and all(known) else None


def _contents(tensor: torch.Tensor) -> int | None:
    """Return a number that is the same for tensors with the same values; None: they say nothing."""
    if _functorch.maybe_current_level() is not None:  # inside of torch.func nothing has a value
        return None
    with _disable_current_modes(), torch.no_grad():
        plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        value = value_of(plain) if is_virtual(plain) else plain
        if type(value) not in (torch.Tensor, nn.Parameter):
            return None
        assert value is not None
        if value.device.type != "cpu" or value.layout != torch.strided or not value.numel():
            return None
        start = value.detach().reshape(-1)[:_ELEMENTS].contiguous().resolve_conj().resolve_neg()
        if bool((start == start[0]).all()):
            return None
        return hash((tuple(value.shape), start.view(torch.uint8).numpy().tobytes()))
