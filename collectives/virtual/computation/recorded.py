"""Recorded model of computation: a profile's times of the forward pass and until each gradient.

The model is the module whose parameters have the profile's names.  When it has returned its outputs, the
forward pass is charged; in the backward pass each parameter's share, before anything else learns that its
gradient is ready.  So whoever reduces gradients, torch's own DistributedDataParallel or ours, launches
its buckets when it would.  All else (loss, optimizer, data) takes no time: profiles have it in those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from collectives.errors import NotSupportedError
from sim.cluster import RankThread

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

    @contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Charge what the model computes on this thread.

        Raises:
            NotSupportedError: no module has had the profile's parameters.
        """
        model = _ModelOfRank(self, rank_thread)
        with (  # of this rank alone, as each has torch's global hooks for itself
            register_module_forward_pre_hook(lambda module, args: model.called(module)),
            register_module_forward_hook(lambda module, args, output: model.returned(module)),
        ):
            yield
            if not model.found:
                raise NotSupportedError(model.missing())


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
            self.nearest = min(
                self.nearest, set(parameters), key=lambda names: len(self.profile.parameters ^ names)
            )
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
