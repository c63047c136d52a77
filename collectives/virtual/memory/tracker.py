"""Memory of one rank's device: its storages from birth to death, by category and module.

Whoever makes tensors of the device calls `Memory.born` with each; the storage is followed from there by a
weak reference, and by its size, which FSDP changes to free what must stay referred to.  Of a subclass that
wraps tensors, such as DTensor, only the tensors within have storages of the device.

Storages are freed when the host lets go of them, as a caching allocator does it: what the device is still to
do with them comes earlier in their stream.  Those that `record_stream` shares with another stream count as
freed, too, but are not reused before the host waits for the device, which is later than CUDA would.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from collectives.virtual.memory.caching_allocator import MIN_BLOCK, CachingAllocator, round_up
from collectives.virtual.memory.held_storage import (
    OUTSIDE,
    Category,
    HeldStorage,
    Moment,
    Overflow,
    Peak,
    by_category,
    by_module,
    out_of_memory,
)
from collectives.virtual.memory.module_scopes import ModuleScopes, is_backward

_Reference: TypeAlias = "weakref.ref[torch.UntypedStorage]"


class Memory:
    """The memory of one rank's device.

    Args:
        capacity: bytes that the device has; None: it is not known, and everything fits.
        raises: what does not fit raises in the script, as with CUDA; else it is noted, and the run goes on.
        index: returns the number of the current device, for errors.
        is_expandable: returns whether segments grow (``expandable_segments:True``); asked when the first
            storage is made.
        iteration: returns the number of the rank's iteration, from 1.
        stream: returns the current stream, to which a block belongs.

    Attributes:
        allocator: of the device.
        scopes: the modules that run.
        peak: the most that was held at once.
        count: of storages that there have been.
        raises: as given.
        overflow: what would have been held when the memory did not suffice, for the last time where that
            raises, else for the first; None: it did.
    """

    def __init__(
        self,
        capacity: int | None = None,
        raises: bool = True,
        index: Callable[[], int] = lambda: 0,
        is_expandable: Callable[[], bool] = lambda: False,
        iteration: Callable[[], int] = lambda: 1,
        stream: Callable[[], Hashable] = lambda: 0,
    ) -> None:
        self.capacity = capacity
        self.allocator = CachingAllocator(capacity)
        self.scopes = ModuleScopes()
        self.peak = Peak()
        self.overflow: Overflow | None = None
        self.optimizing = 0
        self.raises, self._index = raises, index
        self._is_expandable = is_expandable
        self._iteration, self._stream = iteration, stream
        self._has_begun = False
        self.count = 0
        self._alive: dict[int, HeldStorage] = {}
        self._references: dict[int, _Reference] = {}
        self._is_busy = False
        self._dead: list[tuple[int, _Reference]] = []

    def born(self, tensor: Tensor, operation: object = "") -> None:
        """Follow the storage of *tensor*, which an operation has returned, if it is new or of another size.

        Args:
            tensor: of the device; not one that wraps tensors of the device.
            operation: that made it; its text is for reports.

        Raises:
            torch.OutOfMemoryError: the device does not have so much memory, and that is to be raised.
        """
        storage = tensor.untyped_storage()
        key = storage._cdata
        held = self._alive.get(key)
        if held is None:
            if not self.count:
                self.allocator.expandable = self._is_expandable()
            module = self.scopes.current
            self._alive[key] = self._allocate(storage.nbytes(), self._category(), module, operation)
            self._references[key] = weakref.ref(storage, partial(self._die, key))
        elif held.nbytes != storage.nbytes():
            self.resized(storage, operation)

    def resized(self, storage: torch.UntypedStorage, operation: object = "") -> None:
        """Note that *storage* has another size now: what it had is freed, and what it has is allocated.

        Raises:
            torch.OutOfMemoryError: as in `born`.
        """
        key = storage._cdata
        held = self._alive.get(key)
        if held is None or held.nbytes == storage.nbytes():
            return
        self._free(held)
        held.block, held.nbytes = None, 0
        self._alive[key] = self._allocate(storage.nbytes(), held.category, held.module, operation)

    def turn_out(self, tensor: Tensor | None, category: Category, module: str | None = None) -> None:
        """Note what the storage of *tensor* is for, and of which module, if it is of the device."""
        held = None if tensor is None else self._find(tensor)
        if held is not None:
            held.turn_out(category, module)

    def held(self, storage: torch.UntypedStorage) -> HeldStorage | None:
        """Return what is known of *storage*, if it is of the device."""
        return self._alive.get(storage._cdata)

    def communicated(self, tensor: Tensor) -> None:
        """Note that *tensor* is handed to a collective or a message."""
        self.turn_out(tensor, Category.COLLECTIVE_BUFFERS)

    def shared(self, tensor: Tensor, stream: Hashable) -> None:
        """Note that *stream* uses *tensor*, as ``Tensor.record_stream`` says."""
        held = self._find(tensor)
        if held is not None and held.block is not None and held.block.pool.stream != stream:
            held.is_shared = True

    def host_waited(self) -> None:
        """Note that the host has waited for the device: what other streams used can be reused."""
        self.allocator.host_waited()

    def enter(self, module: nn.Module) -> None:
        """Note that a forward pass of *module* begins, and whose parameters it has."""
        if self.scopes.enter(module):
            for inner in module.modules():
                self._own(inner)
        else:
            self._own(module)
        self._has_begun = True

    def register(self, module: nn.Module, parameter: Tensor) -> None:
        """Note that *parameter* becomes one of *module*."""
        self.turn_out(parameter, Category.PARAMETERS, self.scopes.name_of(module) or None)

    def begin_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that a step of *optimizer* begins: what has a gradient, and what states there are."""
        self.optimizing += 1
        self.scopes.end_pass()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.turn_out(parameter, Category.PARAMETERS)
                self.turn_out(parameter.grad, Category.GRADIENTS, self._module_of(parameter))

    def end_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that a step of *optimizer* has ended."""
        self.optimizing = max(0, self.optimizing - 1)
        self._has_begun = False
        for parameter, state in optimizer.state.items():
            module = self._module_of(parameter)
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    self.turn_out(value, Category.OPTIMIZER, module)

    def moment(self, operation: object = "") -> Moment:
        """Return when this is."""
        return Moment(self._iteration(), self._phase(), self.scopes.current, str(operation))

    def held_now(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what is held now, in bytes: by category, and by module."""
        held = [(storage, storage.size) for storage in self._alive.values()]
        return by_category(held), by_module(held)

    def held_at_peak(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return what was held at the peak, in bytes: by category, and by module."""
        held = self.peak.held(self._alive.values())
        return by_category(held), by_module(held)

    def _allocate(self, nbytes: int, category: Category, module: str, operation: object) -> HeldStorage:
        self.count += 1
        if not nbytes:
            return HeldStorage(None, 0, self.count, category, module)

        self._is_busy = True
        try:
            block = self.allocator.allocate(
                nbytes, self._stream(), lambda nbytes: self._overflow(nbytes, category, operation)
            )
        finally:
            self._is_busy = False
        held = HeldStorage(block, nbytes, self.count, category, module)
        allocated = self.allocator.allocated
        if allocated > self.peak.nbytes:
            self.peak.reach(allocated, self.count, self.moment(operation))
        while self._dead:
            self._die(*self._dead.pop())

        return held

    def _overflow(self, nbytes: int, category: Category, operation: object) -> None:
        """Note that the device does not have *nbytes* more."""
        self.allocator.statistics.num_ooms += 1
        if not self.raises and self.overflow is not None:
            return
        categories, modules = self.held_now()
        needed = self.allocator.allocated + round_up(nbytes, MIN_BLOCK)
        moment = self.moment(operation)
        module, asked = moment.module or OUTSIDE, needed - sum(modules.values())
        self.overflow = Overflow(
            moment,
            needed,
            {**categories, category.key: categories[category.key] + asked},
            {**modules, module: modules.get(module, 0) + asked},
        )

        if self.raises:
            assert self.capacity is not None
            asked = self.allocator.asked_of_device(nbytes, self._stream())
            raise out_of_memory(asked, self.capacity, self._index(), self.allocator, categories, modules)

    def _free(self, held: HeldStorage) -> None:
        if held.block is not None:
            self.peak.free(held)
            self.allocator.free(held.block, held.is_shared)

    def _die(self, key: int, reference: _Reference) -> None:
        """Free a storage that nobody refers to; later, if that is found out amid an allocation."""
        if self._is_busy:
            self._dead.append((key, reference))
        elif self._references.get(key) is reference:
            del self._references[key]
            self._free(self._alive.pop(key))

    def _category(self) -> Category:
        if self.optimizing:
            return Category.OPTIMIZER
        return Category.ACTIVATIONS if self._has_begun or is_backward() else Category.OTHER

    def _phase(self) -> str:
        if self.optimizing:
            return "optimizer step"
        if is_backward():
            return "recomputation" if self.scopes.is_running else "backward"
        if self.scopes.is_running:
            return "forward"
        return "between passes" if self._has_begun else "set-up" if self._iteration() == 1 else "data"

    def _own(self, module: nn.Module) -> None:
        """Note whose the parameters and buffers of *module* are, and its gradients when they come."""
        name = self.scopes.name_of(module)
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            self.turn_out(parameter, Category.PARAMETERS, name)
            if parameter.requires_grad and parameter.is_leaf:
                self._watch_gradient(parameter, name)
        for buffer in module._buffers.values():
            self.turn_out(buffer, Category.PARAMETERS, name)

    def _watch_gradient(self, parameter: Tensor, name: str) -> None:
        hooks: Any = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        if not any(isinstance(hook, _GradientHook) for hook in hooks.values()):
            parameter.register_post_accumulate_grad_hook(_GradientHook(self, name))

    def _module_of(self, parameter: Tensor) -> str | None:
        held = self._find(parameter)
        return None if held is None else held.module

    def _find(self, tensor: Any) -> HeldStorage | None:
        """Return the storage of *tensor*, or of that which it wraps, if it is of the device."""
        while (inner := getattr(tensor, "_local_tensor", None)) is not None:
            tensor = inner
        try:
            return self._alive.get(tensor.untyped_storage()._cdata)
        except (AttributeError, NotImplementedError):
            return None  # no tensor, or one without a storage


class _GradientHook:
    """Notes what a parameter's gradient is when it has come."""

    def __init__(self, memory: Memory, module: str) -> None:
        self._memory, self._module = weakref.ref(memory), module

    def __call__(self, parameter: Tensor) -> None:
        memory = self._memory()
        if memory is not None:
            memory.turn_out(parameter.grad, Category.GRADIENTS, self._module)
