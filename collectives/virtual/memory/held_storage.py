"""Storages that a device holds: categories, modules, the peak, and the error where they do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import torch

from collectives.virtual.memory.caching_allocator import CachingAllocator
from collectives.virtual.memory.pools import Block

OUTSIDE = "outside of modules"
"""Of what no module was running for when it was made."""


class Category(IntEnum):
    """What a storage is for; one that turns out to be for two things is what comes later here.

    * ``other``: made before the first module of an iteration runs, such as batches, and nothing else;
    * ``activations``: made by forward and backward passes and between them: what is saved for the backward
      pass, gradients of activations, and everything temporary;
    * ``collective_buffers``: handed to a collective or message of `torch.distributed`, such as flat buffers
      of DDP and FSDP; not those of functional collectives, which are activations;
    * ``optimizer``: made by an optimizer's step, states as well as what is temporary in it;
    * ``gradients``: has been the ``grad`` of a parameter;
    * ``parameters``: has been a parameter or a buffer of a module, sharded or not.
    """

    OTHER = 0
    ACTIVATIONS = 1
    COLLECTIVE_BUFFERS = 2
    OPTIMIZER = 3
    GRADIENTS = 4
    PARAMETERS = 5

    @property
    def key(self) -> str:
        """Its name in reports."""
        return self.name.lower()


@dataclass(eq=False, slots=True)
class HeldStorage:
    """One storage, from an allocation to when it is freed.

    Attributes:
        block: where it lies; None for one of no bytes.
        nbytes: what was asked for.
        number: of its allocation, counted from 1.
        category: what it is for, as far as known.
        module: for which module it was made, by its full name.
        is_shared: another stream than its own uses it.
    """

    block: Block | None
    nbytes: int
    number: int
    category: Category
    module: str
    is_shared: bool = False

    @property
    def size(self) -> int:
        """What it takes of the device, in bytes."""
        return 0 if self.block is None else self.block.size

    def turn_out(self, category: Category, module: str | None = None) -> None:
        """Note what it is for, unless more is known already; and whose it is."""
        if category >= self.category:
            self.category = category
            if module is not None:
                self.module = module


@dataclass(frozen=True)
class Moment:
    """When something happened on a rank.

    Attributes:
        iteration: counted from 1.
        phase: set-up, forward, backward, recomputation, optimizer step, or between passes.
        module: that was running, by its full name; empty where none was.
        operation: that asked for memory, if known.
    """

    iteration: int
    phase: str
    module: str = ""
    operation: str = ""

    def __str__(self) -> str:
        where = f"{self.phase} of {self.module}" if self.module else self.phase
        return f"iteration {self.iteration}, {where}" + (f" ({self.operation})" if self.operation else "")


@dataclass(frozen=True)
class Overflow:
    """What would have been held where the device did not have so much.

    Attributes:
        moment: when.
        nbytes: what was held and what was asked for, in bytes.
        by_category, by_module: of what it consists, in bytes.
    """

    moment: Moment
    nbytes: int
    by_category: Mapping[str, int]
    by_module: Mapping[str, int]


class Peak:
    """The most that was held at once, when that was, and what it consisted of.

    Attributes:
        nbytes: how much.
        number: of the allocation that brought it.
        moment: when.
    """

    def __init__(self) -> None:
        self.nbytes = self.number = 0
        self.moment = Moment(1, "set-up")
        self._freed_since: list[tuple[HeldStorage, int]] = []

    def reach(self, nbytes: int, number: int, moment: Moment) -> None:
        """Note a new peak."""
        self.nbytes, self.number, self.moment = nbytes, number, moment
        self._freed_since.clear()

    def free(self, storage: HeldStorage) -> None:
        """Note that *storage* is freed."""
        if storage.number <= self.number and storage.block is not None:
            self._freed_since.append((storage, storage.size))

    def held(self, alive: Iterable[HeldStorage]) -> list[tuple[HeldStorage, int]]:
        """Return what was held at the peak, with sizes in bytes, given what is *alive* now."""
        then = [(storage, storage.size) for storage in alive if storage.number <= self.number]
        return then + self._freed_since


def by_category(held: Iterable[tuple[HeldStorage, int]]) -> dict[str, int]:
    """Return bytes by category, of every category."""
    sizes: Counter[Category] = Counter()
    for storage, size in held:
        sizes[storage.category] += size
    return {category.key: sizes[category] for category in reversed(Category)}


def by_module(held: Iterable[tuple[HeldStorage, int]]) -> dict[str, int]:
    """Return bytes by module, most first."""
    sizes: Counter[str] = Counter()
    for storage, size in held:
        sizes[storage.module or OUTSIDE] += size
    return {module: size for module, size in sizes.most_common() if size}


_NUM_MODULES = 3


def out_of_memory(
    nbytes: int,
    capacity: int,
    index: int,
    allocator: CachingAllocator,
    categories: Mapping[str, int],
    modules: Mapping[str, int],
) -> torch.OutOfMemoryError:
    """Return the error."""
    reserved, allocated = allocator.reserved, allocator.allocated
    held = ", ".join(f"{key.replace('_', ' ')} {binary(size)}" for key, size in categories.items() if size)
    most = ", ".join(f"{name} {binary(size)}" for name, size in islice(modules.items(), _NUM_MODULES))
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {binary(nbytes)}. "
        f"GPU {index} has a total capacity of {binary(capacity)} of which "
        f"{binary(max(0, capacity - reserved))} is free. "
        f"Of the allocated memory {binary(allocated)} is allocated by PyTorch, and "
        f"{binary(reserved - allocated)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation. "
        f"Held are: {held or 'nothing'}; most by: {most or 'nothing'}."
    )


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether *error*, or what has led to it, is that a device's memory did not suffice."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


def binary(nbytes: int) -> str:
    """Return bytes as CUDA's allocator writes them, such as ``1.50 GiB``."""
    if nbytes <= 2**10:
        return f"{nbytes} bytes"
    for unit, size in (("KiB", 2**10), ("MiB", 2**20)):
        if nbytes <= size * 2**10:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"
