"""Recorded model of computation: a profile's times of the forward pass and until each gradient.

The model is the module whose parameters have the profile's names.  When it has returned its outputs, the
forward pass is charged; in the backward pass each parameter's share, before anything else learns that its
gradient is ready.  So whoever reduces gradients, torch's own DistributedDataParallel or ours, launches
its buckets when it would.  All else (loss, optimizer, data) takes no time: profiles have it in those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from collectives.errors import NotSupportedError
from sim.cluster import RankThread
from sim.cluster.rank_thread import current_rank_thread

T = TypeVar("T")


class RankHooks(Generic[T]):
    """Hooks of each rank, which has torch's global hooks for itself, and one value for each.

    Args:
        register: registers the hooks; a hook looks up the value of the rank on whose thread it is called.
    """

    def __init__(self, register: Callable[[], Sequence[RemovableHandle]]) -> None:
        self._register = register
        self._values: dict[int, T] = {}

    def current(self) -> T | None:
        """Return the value of the rank whose thread this is; None on a thread without one."""
        rank_thread = current_rank_thread()
        return None if rank_thread is None else self._values.get(rank_thread.rank)

    @contextmanager
    def active(self, rank_thread: RankThread, value: T) -> Iterator[None]:
        """Let *value* be that of *rank_thread*, which has the hooks, while the body runs on its thread."""
        self._values[rank_thread.rank] = value
        handles = self._register()
        try:
            yield
        finally:
            del self._values[rank_thread.rank]
            for handle in handles:
                handle.remove()


_GRADIENT = "gradient:"


class Recorded:
    """A profile: a `collectives.virtual.computation.ComputeModel`.

    Args:
        picoseconds: of ``forward``, of ``gradient:NAME`` since the gradient before it, and of ``backward``
            after the last one, as ``ddp.Profile.compute_charges`` returns them.
        name: of the profile.

    Raises:
        NotSupportedError: there are no gradients.
    """

    repeats = True

    def __init__(self, picoseconds: Mapping[str, int], name: str = "profile") -> None:
        self.picoseconds = dict(picoseconds)
        self.name = f"profile {name}"
        self.parameters = {work.removeprefix(_GRADIENT) for work in picoseconds if work.startswith(_GRADIENT)}
        if not self.parameters:
            raise NotSupportedError(f"{self.name} has no gradient; expected charges named gradient:NAME")
        self._hooks: RankHooks[_ModelOfRank] = RankHooks(self._watch_modules)

    @contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Charge what the model computes on this thread.

        Raises:
            NotSupportedError: no module has had the profile's parameters.
        """
        model = _ModelOfRank(self, rank_thread)
        with self._hooks.active(rank_thread, model):
            yield
            if not model.found:
                raise NotSupportedError(model.missing())

    def _watch_modules(self) -> Sequence[RemovableHandle]:
        def before_forward(module: torch.nn.Module, _: Any) -> None:
            model = self._hooks.current()
            if model is not None:
                model.called(module)

        def after_forward(module: torch.nn.Module, *_: Any) -> None:
            model = self._hooks.current()
            if model is not None:
                model.returned(module)

        return [
            register_module_forward_pre_hook(before_forward),
            register_module_forward_hook(after_forward),
        ]


class _ModelOfRank:
    """The model that the profile is of, as one rank has it."""

    def __init__(self, profile: Recorded, rank_thread: RankThread) -> None:
        self.profile = profile
        self.rank_thread = rank_thread
        self.models: WeakSet[torch.nn.Module] = WeakSet()
        self.others: WeakSet[torch.nn.Module] = WeakSet()
        self.found = False
        self.nearest: set[str] = set()
        self.backward_pass = -1

    def called(self, module: torch.nn.Module) -> None:
        """Look whether *module* is the model."""
        if module in self.models or module in self.others:
            return
        parameters = dict(module.named_parameters())
        if parameters.keys() != self.profile.parameters:
            self.others.add(module)
            self.nearest = max(self.nearest, set(parameters), key=self._likeness)
            return
        self.found = True
        self.models.add(module)
        for name, parameter in parameters.items():
            if hasattr(parameter, "placements"):
                raise NotSupportedError(
                    f"{self.profile.name} has the times of whole parameters, {name} is sharded; "
                    "use a roofline of the device instead"
                )
            if parameter.requires_grad:
                parameter.register_hook(self._charging(name))

    def returned(self, module: torch.nn.Module) -> None:
        """Charge the forward pass of the model."""
        if module in self.models:
            self._charge("forward")

    def missing(self) -> str:
        """Say that no module has been the model."""
        known, rank = self.profile.parameters, self.rank_thread.rank
        others = sorted(known ^ self.nearest)[:3]
        return (
            f"{self.profile.name} has the times of {len(known)} parameters, and rank {rank} has "
            f"called no module with just these; the nearest differs in {', '.join(others)}. Use a profile of "
            "this model, or a roofline of the device"
        )

    def _likeness(self, names: set[str]) -> int:
        return -len(self.profile.parameters ^ names)

    def _charging(self, name: str) -> Callable[[torch.Tensor], None]:
        def charge(_: torch.Tensor) -> None:
            backward_pass = torch._C._current_graph_task_id()
            if backward_pass != self.backward_pass:
                self.backward_pass = backward_pass
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._charge("backward"))
            self._charge(_GRADIENT + name)

        return charge

    def _charge(self, work: str) -> None:
        self.rank_thread.compute(self.profile.picoseconds.get(work, 0), work)
