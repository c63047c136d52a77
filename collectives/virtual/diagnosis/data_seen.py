"""Data seen: ranks that average their gradients, and train on the same batches.

Averaging is for gradients of different batches; where two ranks train on the same ones, one of them works
for nothing.  Compared are values: of each iteration the inputs of each outermost module that is called in
training, when it is called first, and of its embeddings and its first two other modules with parameters of
their own.  So a model that takes its share of a common batch inside is left in peace, and so are several
models of which some get the same on all ranks (prompts, noise) and others do not, and ranks that share a
batch and average nothing, as in tensor parallelism: a group counts over which DDP or FSDP reduce gradients,
a wrapper with torch's interface whose reductions are no calls of a group does (`ddp`), or the script reduces
all gradients by itself.  Inputs without values, and those that are one number all over, say
nothing; those given by name are seen where an inner module gets them by position, as torch tells its global
hooks no names.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import nn
from torch.distributed import get_process_group_ranks
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel as TorchsOwn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import dataloader

from collectives.execution.blame import spell_ranks
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.gpu.values import is_virtual, value_of
from collectives.virtual.isolation.patching import observed, replaced
from sim.cluster import RankThread, current_rank_thread

_ITERATIONS = 4
"""How many iterations of a rank are compared."""
_MODULES = 2
"""How many modules with parameters are looked at in an outermost one, apart from embeddings."""
_INPUTS = 32
"""How many inputs of an iteration, at most."""
_ELEMENTS = 1 << 16
"""How many elements of an input, at least; they are spread over it."""
_SYSTEMS = tuple(
    f"{Path(torch.__file__).parent}/distributed/{name}"
    for name in ("fsdp/_", "fsdp/fully_sharded_data_parallel", "_composable/", "algorithms/ddp_comm_hooks/")
)
"""Code of torch whose reductions are of gradients; a loss scaler's are not, and are over all ranks."""
_core: Any = torch._C
_iterator: Any = dataloader._BaseDataLoaderIter


@dataclass
class _Seen:
    """What one rank has trained on.

    Attributes:
        inputs: of each iteration, by number: what stands for the values of inputs, None for none.
        outermost: modules that no other one calls, and in which iteration they have last been called.
        inner: the modules inside of these.
        modules: how many with parameters have been called since an outermost one was.
        place: of the call of the model.
        loader: of the loader that batches come from.
        parameters: of the outermost modules, by identity, whose gradients the script may reduce.
        reduced: how many elements of gradients the script has reduced in an iteration, by group.
        flat: of how many elements tensors are that it has reduced there: one may be all gradients.
        whole: how many elements all gradients of an iteration have, as far as calls have found them.
        groups: over which gradients are reduced by torch.
    """

    inputs: defaultdict[int, list[int | None]] = field(default_factory=lambda: defaultdict(list))
    outermost: WeakKeyDictionary[nn.Module, int] = field(default_factory=WeakKeyDictionary)
    inner: WeakSet[nn.Module] = field(default_factory=WeakSet)
    modules: int = 0
    place: str = ""
    loader: str = ""
    parameters: dict[int, ref[nn.Parameter]] = field(default_factory=dict)
    reduced: defaultdict[tuple[int, tuple[int, ...]], int] = field(default_factory=lambda: defaultdict(int))
    flat: defaultdict[tuple[int, tuple[int, ...]], set[int]] = field(default_factory=lambda: defaultdict(set))
    whole: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    groups: set[tuple[int, ...]] = field(default_factory=set)

    def reducing(self) -> set[tuple[int, ...]]:
        """Return the groups over which gradients are reduced, by torch, or all of an iteration by the script.

        In the middle of a backward pass not all gradients are there: an iteration's are counted at its end.
        """
        by_script = {
            hosts
            for (number, hosts), elements in self.reduced.items()
            if (whole := self.whole[number]) and (elements >= whole or whole in self.flat[number, hosts])
        }
        return self.groups | by_script

    def enters(self, module: nn.Module, number: int) -> bool:
        """Note a call in iteration *number*; return whether it is the first one of an outermost module."""
        if module in self.inner or self.outermost.get(module) == number:
            return False
        if module not in self.outermost:
            parameters = list(module.parameters())
            if not parameters:
                return False
            self.parameters |= {id(own): ref(own) for own in parameters}
            self.inner.update(own for own in module.modules() if own is not module)
        self.outermost[module] = number
        self.modules = 0
        return True

    def gradients(self) -> dict[int, int]:
        """Return how many elements the gradients of the outermost modules have, by identity."""
        alive = [own for known in self.parameters.values() if (own := known()) is not None]
        return {id(own.grad): own.grad.numel() for own in alive if own.grad is not None}


class DataSeen:
    """Compares what the ranks of one run train on."""

    def __init__(self, finished: Callable[[int], int]) -> None:
        self._finished = finished
        self._seen: defaultdict[int, _Seen] = defaultdict(_Seen)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        with (
            register_module_forward_pre_hook(self._called),
            replaced([(_iterator, "__next__", observed(_iterator.__next__, before=self._loads))]),
        ):
            yield

    def _loads(self, rank_thread: RankThread, iterator: Any) -> None:
        seen = self._seen[rank_thread.rank]
        if torch.is_grad_enabled() and not seen.loader:
            seen.loader = current_place()

    def mistakes(self) -> Iterator[str]:
        """Yield which ranks have trained on the same batches."""
        found: defaultdict[str, dict[tuple[int, ...], str]] = defaultdict(dict)
        for group in sorted({group for seen in self._seen.values() for group in seen.reducing()}):
            alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
            for rank in group:
                if (inputs := self._inputs(rank)) is not None:
                    alike[inputs].append(rank)
            for inputs, ranks in alike.items():
                seen = self._seen[ranks[0]]
                if len(ranks) > 1:
                    what = "the same batches" if len(set(inputs)) > 1 else "one batch, the same all along"
                    found[seen.loader or seen.place][tuple(ranks)] = what
        for place, sets in found.items():
            first, what = next(iter(sets.items()))
            more = f" (sets of ranks that do: {len(sets)})" if len(sets) > 1 else ""
            yield (
                f"{place}: {spell_ranks(first)} train on {what}{more}, and their gradients are averaged; "
                "give each its own, by a DistributedSampler with as many replicas as the group has ranks, or "
                "by another seed for what draws batches"
            )

    def began(self, call: WatchedCall) -> None:
        """Note over which group *call* reduces gradients, if it does."""
        seen = self._seen.get(call.rank_thread.rank)
        if seen is None or call.operation not in ("all_reduce", "reduce_scatter"):
            return
        hosts = tuple(call.hosts)
        if call.is_of_backward or call.caller.f_code.co_filename.startswith(_SYSTEMS):
            seen.groups.add(hosts)
            return
        number = self._finished(call.rank_thread.rank)
        if number < _ITERATIONS and hosts not in seen.groups and call.is_users:
            gradients = seen.gradients()
            seen.whole[number] = max(seen.whole[number], sum(gradients.values()))
            for tensor in call.tensors:
                seen.reduced[number, hosts] += gradients.get(id(tensor), 0)
                seen.flat[number, hosts].add(tensor.numel())

    def _called(self, module: Any, args: Any) -> None:
        rank_thread = current_rank_thread()
        if rank_thread is None or not module.training or not torch.is_grad_enabled():
            return
        number = self._finished(rank_thread.rank)
        if number >= _ITERATIONS or _is_traced():
            return
        seen = self._seen[rank_thread.rank]
        is_first, has_parameters = seen.enters(module, number), bool(module._parameters)
        inputs = seen.inputs[number]
        if len(inputs) >= _INPUTS or not (is_first or (has_parameters and seen.modules < _MODULES)):
            return
        seen.modules += has_parameters and not isinstance(module, nn.Embedding)
        seen.place = seen.place or current_place()
        if getattr(module, "require_backward_grad_sync", False) and not isinstance(module, TorchsOwn):
            seen.groups.add(tuple(get_process_group_ranks(module.process_group)))
        inputs += map(_contents, tensors_in(args))

    def _inputs(self, rank: int) -> tuple[tuple[int, ...], ...] | None:
        """Return what stands for the inputs of a rank by iteration; None where that says nothing."""
        if rank not in self._seen:
            return None
        inputs = self._seen[rank].inputs
        finished = min(self._finished(rank), _ITERATIONS)
        known = [tuple(one for one in inputs[number] if one is not None) for number in range(finished)]
        return tuple(known) if len(known) > 1 and all(known) else None


def _is_traced() -> bool:
    """Return whether tensors stand for others, inside of `torch.func` or while a program is recorded."""
    return _core._functorch.maybe_current_level() is not None or _core._is_tracing()


def _contents(tensor: torch.Tensor) -> int | None:
    """Return a number that is the same for tensors with the same values; None: they say nothing."""
    with _disable_current_modes(), torch.no_grad():
        plain = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        value = value_of(plain) if is_virtual(plain) else plain
        if type(value) not in (torch.Tensor, nn.Parameter):
            return None
        assert value is not None
        is_plain = value.device.type == "cpu" and value.layout == torch.strided and not value.is_nested
        if not is_plain or value.is_quantized or not value.numel():
            return None
        step = (value.numel() // _ELEMENTS) | 1  # odd, so as not to fall on one column of a matrix
        some = value.detach().reshape(-1)[::step].contiguous().resolve_conj().resolve_neg()
        contents = some.view(torch.uint8).numpy().reshape(len(some), -1)
        if (contents == contents[0]).all():
            return None
        return hash((tuple(value.shape), contents.tobytes()))
