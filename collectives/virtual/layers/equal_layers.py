"""Equal layers in a run without data: what a block has issued is issued again from a record.

A block is an element of a ``ModuleList``, ``Sequential`` or ``ModuleDict`` beside others of its class.  Which
operations it dispatches follows from its configuration, its inputs' kinds, switches of torch and
variables of the script; where all of these are as before, so is what it issues.  Every call is carried out
and recorded until two of them have issued the same and have been gone back through; from then on calls are
issued from the record, on all ranks.  Of blocks of which two calls differ, or of which a record cannot tell
all (`Recording`, `Effects`), every call is carried out.

    configuration   what decides what a block issues
    effects         whether its Python does anything else
    record          what a call and its backward pass issue
    recording       who listens to them
    reissue         a call from a record
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as modules_of_torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from collectives.virtual.computation.compiled import Regions
from collectives.virtual.computation.launches import allows_tf32
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.shapes import Likeness, key_anywhere
from collectives.virtual.gpu.values import value_of
from collectives.virtual.isolation.patching import Replacement
from collectives.virtual.layers.configuration import (
    UnknownConfigurationError,
    configuration_of,
    is_trusted,
    value_key,
)
from collectives.virtual.layers.effects import Effects
from collectives.virtual.layers.record import Backward, Forward
from collectives.virtual.layers.recording import Recording
from collectives.virtual.layers.reissue import Reissue
from collectives.virtual.layers.reissued import Reissued
from collectives.virtual.memory.module_scopes import is_backward
from collectives.virtual.streams.gpu import Gpu

EQUAL = 2
"""So many calls have to issue the same before others are issued from their record."""


class Calls:
    """Calls that have to issue the same.

    Attributes:
        reason: why none is issued from a record; empty if that may be.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._equal = 0
        self._record: tuple[Forward, Backward | None, Any] | None = None

    @property
    def record(self) -> tuple[Forward, Backward | None, Any] | None:
        """What a call issues, and the structure of its results; None as long as it is not known."""
        return self._record if self._equal >= EQUAL and not self.reason else None

    def add(self, recording: Recording, structure: Any) -> None:
        """Compare a call with those before."""
        self.reason = self.reason or recording.reason
        if self.reason:
            self._record = None
            return
        if self._record is None:
            self._record = recording.forward, recording.backward, structure
        else:
            self._record = self._with(recording, *self._record, structure)
        if self._record is None:
            self.reason = "two calls issue different things"
        self._equal += 1

    @staticmethod
    def _with(
        recording: Recording, forward: Forward, backward: Backward | None, structure: Any, given: Any
    ) -> tuple[Forward, Backward | None, Any] | None:
        """Return a record with what is known by another one; None if they differ."""
        if (forward, structure) != (recording.forward, given):
            return None
        if backward is None or recording.backward is None:
            return (forward, backward, structure) if backward is recording.backward else None
        merged = backward.with_deaths_of(recording.backward, forward.given())
        return None if merged is None else (forward, merged, structure)


class EqualLayers:
    """The blocks of one rank.

    Args:
        devices: of the rank.
        gpu: that of the devices on which it computes.
        likeness: what makes its virtual tensors.
        reissued: what counts calls.
        known: calls of all ranks.
    """

    def __init__(
        self,
        devices: CudaDevices,
        gpu: Gpu,
        likeness: Likeness,
        reissued: Reissued,
        known: dict[Hashable, Calls],
    ) -> None:
        self._devices, self._gpu, self._likeness, self._reissued = devices, gpu, likeness, reissued
        self._are_blocks: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        self._effects: dict[Hashable, Effects] = {}
        self._calls = known
        self._is_inside = False

    def take(self, module: nn.Module) -> bool:
        """Return whether a call of *module* is that of a block, and not within that of another one."""
        if self._is_inside or is_backward():
            return False
        is_block = self._are_blocks.get(module)
        if is_block is None:
            self._look_into(module)
            is_block = self._are_blocks[module]
        return is_block and "forward" not in vars(module)

    def _look_into(self, root: nn.Module) -> None:
        """Find the blocks of *root*."""
        for module in root.modules():
            self._are_blocks.setdefault(module, False)
        for module in root.modules():
            if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
                elements = tuple(module.children())
                number = Counter(map(type, elements))
                for own in elements:
                    self._are_blocks[own] = number[type(own)] > 1 and bool(own._modules)

    def forward(self, module: nn.Module, *args: Any, **options: Any) -> Any:
        """Return what a block returns, carried out or issued from a record."""
        del vars(module)["forward"]
        self._reissued.calls += 1
        inputs, given = tree_flatten((args, options))
        key = self._key(module, inputs, given)
        calls = None if key is None else self._calls.setdefault(key, Calls())
        if calls is not None and calls.reason:
            self._are_blocks[module] = False
        if calls is None or calls.reason:
            return module.forward(*args, **options)
        self._is_inside = True
        try:
            if calls.record is None:
                return self._record(calls, key, module, inputs, args, options)
            self._reissued.again += 1
            forward, backward, structure = calls.record
            made = Reissue(self._devices, self._gpu, self._likeness, module, forward, backward).call(inputs)
            return tree_unflatten(made, structure)
        finally:
            self._is_inside = False

    def _record(
        self, calls: Calls, key: Hashable, module: nn.Module, inputs: list[Any], args: Any, options: Any
    ) -> Any:
        structure: Any = None
        recording = Recording(self._devices, self._gpu, module, inputs, lambda own: calls.add(own, structure))
        with recording.listening():
            result = module.forward(*args, **options)
        if self._key(module, *tree_flatten((args, options))) != key:
            recording.deny("it changes what decides what it issues")
        outputs, structure = tree_flatten(result)
        recording.returned(outputs, inputs, module)
        return result

    def _key(self, module: nn.Module, inputs: list[Any], given: Any) -> Hashable | None:
        """Return what decides what a call issues; None if it cannot be told."""
        surroundings = self._surroundings()
        if surroundings is None:
            return None
        try:
            configuration, kinds = configuration_of(module), self._kinds(inputs)
            effects = self._effects.get(configuration)
            if effects is None:
                effects = self._effects[configuration] = Effects.of(module)
            reads = tuple(
                (name, value_key(variables.get(name))) for (_, name), variables in effects.reads.items()
            )
        except UnknownConfigurationError:
            self._are_blocks[module] = False
            return None
        if effects.reason:
            self._are_blocks[module] = False
            return None
        return configuration, kinds, given, surroundings, reads

    def _kinds(self, inputs: list[Any]) -> Hashable:
        """Return what is known of leaves of a call's arguments.

        Raises:
            UnknownConfigurationError: one cannot be compared, or has a value on which the call may depend.
        """
        kinds = key_anywhere(inputs, torch.device("cuda", self._devices.index))
        if kinds is None or any(map(_has_value, inputs)):
            raise UnknownConfigurationError
        tensors = [own for own in inputs if isinstance(own, torch.Tensor)]
        numbers: dict[int, int] = {}
        shared = [numbers.setdefault(own.untyped_storage()._cdata, len(numbers)) for own in tensors]
        return (
            kinds,
            tuple(own.requires_grad for own in tensors),
            tuple(shared),
            tuple(own for own in inputs if isinstance(own, (float, complex))),
        )

    def _surroundings(self) -> Hashable | None:
        """Return switches that decide what operations are issued; None where others see them, too."""
        gpu = self._gpu
        if (
            gpu.graph is not None
            or Regions.of(gpu).current is not None
            or torch._C._len_torch_function_stack()
            or torch._C._len_torch_dispatch_stack() != 1
            or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
            or torch.is_inference_mode_enabled()
            or torch._C._autograd._profiler_enabled()
            or torch.is_anomaly_enabled()
            or not all(map(_is_of_torch, _hooks_of_all_modules()))
        ):
            return None
        cuda = torch.backends.cuda
        return (
            gpu.current.number,
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            *(torch.is_autocast_enabled(kind) for kind in ("cuda", "cpu")),
            torch.get_autocast_dtype("cuda"),
            allows_tf32(False),
            allows_tf32(True),
            torch.are_deterministic_algorithms_enabled(),
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            cuda.math_sdp_enabled(),
            cuda.cudnn_sdp_enabled(),
        )


def _hooks_of_all_modules() -> Iterator[Any]:
    for name in ("forward_pre", "forward", "backward_pre", "backward"):
        yield from getattr(modules_of_torch, f"_global_{name}_hooks").values()


def _is_of_torch(hook: Any) -> bool:
    """Return whether a hook is torch's, or of what stands in its place here."""
    return is_trusted(getattr(getattr(hook, "func", hook), "__module__", None) or "")


def _has_value(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value_of(value) is not None


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's call of a module."""
    original: Any = nn.Module._call_impl

    @wraps(original)
    def called(module: nn.Module, *args: Any, **options: Any) -> Any:
        devices = CudaDevices.here()
        layers = None if devices is None else devices.layers
        if layers is None or not layers.take(module):
            return original(module, *args, **options)
        vars(module)["forward"] = partial(layers.forward, module)
        try:
            return original(module, *args, **options)
        finally:
            vars(module).pop("forward", None)

    yield nn.Module, "_call_impl", called
