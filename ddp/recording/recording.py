"""Recording of a profile from real iterations, of ours, of torch's DDP, or of a module alone.

    with ddp.record() as profile:          # any training loop
        train()
    profile.save("mine.json")

    profile = ddp.record_profile(module, step, name="mine")

Every number is the median over the iterations, so that one hiccup does not bend the profile.  Under data
parallelism gradients are stamped as autograd delivers them: waiting for communication is not in the
profile, but what communication takes from the processor is.  Alone, on one rank, a recording is cleanest.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules import module as module_hooks

from ddp.errors import ProfileError
from ddp.profiles import Profile
from ddp.recording.pass_observer import PassObserver, Stamps, profile_of

ITERATIONS, WARMUP = 9, 2


def record(
    *,
    name: str | None = None,
    module: nn.Module | str | None = None,
    num_iterations: int = ITERATIONS,
    num_warmup: int = WARMUP,
) -> Recording:
    """Record the module that is trained inside a ``with`` block.

    Args:
        name: of the profile; by default that of the module's class.
        module: which one, or its name as `Recording.trained` has it, where several are trained.
        num_iterations: passes over which medians are taken; after these, nothing is recorded.
        num_warmup: passes before these, which do not count if there are more.

    Raises:
        ProfileError: a number is out of range.
    """
    return Recording(name, module, num_iterations, num_warmup)


class Recording:
    """What is recorded inside a ``with`` block; see `record`.

    A module is found when it is called, from outside of all modules, with gradients enabled, before any
    module is through with its warm-up.

    Attributes:
        on_full: is called at the beginning of the forward pass after the last that is recorded.
    """

    def __init__(
        self, name: str | None, module: nn.Module | str | None, num_iterations: int, num_warmup: int
    ) -> None:
        _check_numbers(num_iterations, num_warmup)
        self._name = name
        self._wanted = module
        self._count = num_iterations
        self._num_warmup = num_warmup
        self._seen: dict[nn.Module, PassObserver] = {}
        self._handles: list[Any] = []
        self._inside = threading.local()
        self._where = ""
        self._warnings = warnings.catch_warnings()
        self.on_full: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        """Begin to record."""
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._called),
            module_hooks.register_module_forward_hook(self._returned, always_call=True),
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop recording; what was recorded is kept, also after an exception."""
        self._warnings.__exit__(kind, error, traceback)
        self._stop_looking()
        for observer in self._seen.values():
            observer.remove()

    @property
    def trained(self) -> dict[str, int]:
        """How many passes of each module that was trained were seen, by the name of its class."""
        return {name: len(observer.passes) for name, (_, observer) in self._candidates().items()}

    @property
    def profile(self) -> Profile:
        """The profile, once the block has ended.

        Raises:
            ProfileError: no module was trained, or several were and none was named.
        """
        module, observer = self._chosen()
        passes = observer.passes[self._num_warmup :][: self._count] or observer.passes[-1:]
        return profile_of(passes, observer, self._name or type(module).__name__, self._where)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile to *path* as JSON.

        Raises:
            ProfileError: see `profile`.
            OSError: the file cannot be written.
        """
        self.profile.save(path)

    def _called(self, module: nn.Module, _inputs: object) -> None:
        """Look at a module that is called from outside of all others; it may be one that is trained."""
        if torch.compiler.is_compiling():
            return
        if getattr(self._inside, "module", None) is not None or not torch.is_grad_enabled():
            return
        self._inside.module = module
        surface, own = _unwrap(module)
        if own in self._seen:
            return
        parameters = _trainable(own)
        if not parameters:
            return
        observer = PassObserver(surface, parameters, _sent_buffers(module, own), self._forward_begins)
        self._seen[own] = observer
        if surface is module:
            observer.forward_begins()

    def _returned(self, module: nn.Module, _inputs: object, _output: object) -> None:
        if not torch.compiler.is_compiling() and getattr(self._inside, "module", None) is module:
            self._inside.module = None

    def _forward_begins(self) -> None:
        most = max((len(observer.passes) for observer in self._seen.values()), default=0)
        if most and not self._where and dist.is_available() and dist.is_initialized():
            self._where = f", rank {dist.get_rank()} of {dist.get_world_size()}"
        if most > self._num_warmup:
            self._stop_looking()
        if most >= self._num_warmup + self._count:
            for observer in self._seen.values():
                observer.remove()
            self.on_full()

    def _stop_looking(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _candidates(self) -> dict[str, tuple[nn.Module, PassObserver]]:
        """Return the outermost modules that were trained, by names that differ."""
        trained = {own: observer for own, observer in self._seen.items() if observer.passes}
        found: dict[str, tuple[nn.Module, PassObserver]] = {}
        for own, observer in trained.items():
            if any(own is not other and own in other.modules() for other in trained):
                continue
            kind = type(own).__name__
            names = [kind, *(f"{kind}-{number}" for number in range(2, len(trained) + 1))]
            found[next(name for name in names if name not in found)] = (own, observer)
        return found

    def _chosen(self) -> tuple[nn.Module, PassObserver]:
        found = self._candidates()
        listed = ", ".join(f"{name} ({count} passes)" for name, count in self.trained.items())
        if isinstance(self._wanted, nn.Module):
            wanted = _unwrap(self._wanted)[1]
            found = {name: pair for name, pair in found.items() if pair[0] is wanted}
        elif self._wanted is not None:
            found = {name: pair for name, pair in found.items() if name == self._wanted}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            raise ProfileError(f"several modules were trained: {listed}; say which, by module=")
        if listed:
            wanted_name = self._wanted if isinstance(self._wanted, str) else type(self._wanted).__name__
            raise ProfileError(f"the module {wanted_name} was not trained; trained were: {listed}")
        raise ProfileError(
            "nothing was recorded: no module was called with gradients enabled and followed by backward()"
        )


def record_profile(
    module: nn.Module,
    step: Callable[[], object],
    *,
    name: str,
    num_iterations: int = ITERATIONS,
    num_warmup: int = WARMUP,
) -> Profile:
    """Return the profile of *module*, recorded while *step* trains it.

    Args:
        module: the module, or our or torch's `DistributedDataParallel` around it.
        step: runs one iteration: forward pass, loss, backward pass; at the per-rank batch.
        name: of the profile.
        num_iterations: over which the medians are taken.
        num_warmup: iterations before these, which do not count.

    Raises:
        ProfileError: a step ran no forward and backward pass of the module, or some parameter got
            no gradient.
    """
    _check_numbers(num_iterations, num_warmup)
    surface, own = _unwrap(module)
    parameters = _trainable(own)
    if not parameters:
        raise ProfileError("the module has no parameter that requires a gradient")
    observer = PassObserver(surface, parameters, _sent_buffers(module, own))
    steps: list[Stamps] = []
    try:
        for _ in range(num_warmup + num_iterations):
            observer.passes.clear()
            observer.abandon()
            step()
            steps.append(_last_pass(observer, parameters))
    finally:
        observer.remove()
    return profile_of(steps[num_warmup:], observer, name, "")


def _check_numbers(iterations: int, warmup: int) -> None:
    if iterations < 1 or warmup < 0:
        raise ProfileError(
            f"expected at least one iteration, got num_iterations={iterations}, num_warmup={warmup}"
        )


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that get gradients, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _last_pass(observer: PassObserver, parameters: Mapping[str, nn.Parameter]) -> Stamps:
    if not observer.passes:
        raise ProfileError(
            "a step ran no forward and backward pass of the module; it must call the module, and backward() "
            "on a loss of what it returns"
        )
    stamps = observer.passes[-1]
    missing = [name for name in parameters if name not in stamps]
    if missing:
        raise ProfileError(f"a step computed no gradient for {', '.join(missing)}")
    return stamps


def _sent_buffers(module: nn.Module, own: nn.Module) -> list[torch.Tensor]:
    """Return the buffers of *own* that DDP sends before each forward pass, unless *module* does not."""
    sends = getattr(module, "forward_sync_buffers", getattr(module, "broadcast_buffers", True))
    return [*own.buffers()] if sends else []


def _unwrap(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return the module that computes when *module* is called, and the one that has the parameters."""
    from ddp.training.data_parallel import DistributedDataParallel

    wrappers: tuple[type[nn.Module], ...] = (
        DistributedDataParallel,
        nn.parallel.DistributedDataParallel,
        nn.DataParallel,
    )
    surface = module
    while isinstance(surface, wrappers):
        surface = surface.module  # type: ignore[assignment]
    own: Any = surface
    while isinstance(own, wrappers) or isinstance(getattr(own, "_orig_mod", None), nn.Module):
        own = own.module if isinstance(own, wrappers) else own._orig_mod
    return surface, own
