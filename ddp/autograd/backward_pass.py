"""Backward passes as autograd tells of them: which are reduced, and when their gradients have come.

A backward pass is reduced if it comes through the outputs of a forward pass that asked for it.  So
one of the bare module, or inside ``no_sync``, accumulates locally; one that reaches no parameter
(a generator trained through a frozen discriminator) reduces nothing; and re-entrant checkpoints,
which run backward passes of their own inside, do not end the outer one.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import Variable
from torch.distributed import rpc
from torch.nn import Parameter
from torch.utils import _pytree as pytree

from ddp.autograd.observation.timeline import RankTimeline

NO_PASS = -1
REFERENCE: tuple[type, ...] = (rpc.RRef,) if rpc.is_available() else ()


class PassListener(Protocol):
    """Hears of the passes that are reduced."""

    def backward_began(self) -> None:
        """A pass that is reduced has begun."""

    def backward_ended(self) -> None:
        """The pass is over: no further gradient will come."""

    def pass_abandoned(self) -> None:
        """An exception ended the pass; what it has started counts for nothing."""

    def gradient_failed(self, error: Exception) -> None:
        """Something that was done with a gradient has raised an error, which ends the pass."""


class GradientListener(Protocol):
    """Hears of gradients."""

    def gradient_ready(self, index: int) -> None:
        """The gradient of parameter *index* has been accumulated in a pass that is reduced."""

    def gradient_kept(self, index: int) -> None:
        """It has been accumulated in a pass that is not reduced, as far as is known."""

    def gradient_early(self, index: int) -> None:
        """One that was kept belongs to the pass that has begun."""


class BackwardPasses:
    """Watches the forward and backward passes of one module.

    Args:
        parameters: by name; their indices count in this order.
        timeline: is told what was computed.
    """

    def __init__(self, parameters: dict[str, Parameter], timeline: RankTimeline) -> None:
        self._labels = [f"gradient:{name}" for name in parameters]
        self._timeline = timeline
        self._reducing_pass: int | None = None
        self._expected = False
        self._first_computed = False
        self._kept_pass = NO_PASS
        self._kept: list[int] = []
        self._parameters = list(parameters.values())
        self._watched: dict[int, Any] = {}
        self._others: list[Any] = []
        self.remove_hooks = weakref.finalize(self, _remove_all, self._watched, self._others)
        self.watch(range(len(self._parameters)))
        if self._parameters:
            self._others.append(
                self._parameters[0].register_hook(_weak(self, BackwardPasses._on_first_computed))
            )

    def report_to(self, listener: PassListener, gradients: GradientListener) -> None:
        """Tell these two of passes and of gradients; neither is kept alive if it is a weak proxy."""
        self._listener = listener
        self._gradients = gradients

    def watch(self, indices: Collection[int]) -> None:
        """Tell of the gradients of these parameters, and of the first parameter's."""
        for index in set(self._watched) - {0, *indices}:
            self._watched.pop(index).remove()
        for index in set(indices) - set(self._watched):
            hook = _gradient_hook(weakref.ref(self), index)
            self._watched[index] = self._parameters[index].register_post_accumulate_grad_hook(hook)

    @property
    def watched(self) -> Collection[int]:
        """The parameters whose gradients are told of."""
        return self._watched.keys()

    @property
    def under_way(self) -> bool:
        """Whether a pass that is reduced has begun and not ended."""
        return self._reducing_pass is not None

    def forward_begins(self) -> bool:
        """Take note of a forward pass; return whether it is outside any backward pass."""
        outside_backward = torch._C._current_graph_task_id() == NO_PASS
        if outside_backward and self._reducing_pass is not None:
            self._abandon()
        return outside_backward

    def forward_ended(self, outputs: Sequence[torch.Tensor] | None) -> bool:
        """Take note of the end; reduce in backward passes that come through *outputs*.

        None: the next backward pass accumulates locally.  No outputs that need a gradient: the
        next backward pass that reaches a parameter is meant; only its gradients will tell of it.

        Returns:
            Whether the outputs tell when such a pass begins.
        """
        self._timeline.computed("forward")
        differentiable = [output for output in outputs or () if output.grad_fn is not None]
        self._expected = outputs is not None and torch.is_grad_enabled() and not differentiable
        for output in differentiable:
            output.register_hook(_weak(self, BackwardPasses._on_output))
        return not self._expected

    def _on_output(self) -> None:
        """Reduce in the backward pass that runs now."""
        running_pass = torch._C._current_graph_task_id()
        if self._reducing_pass == running_pass:
            return
        if self._reducing_pass is not None:
            self._abandon()
        self._reducing_pass = running_pass
        self._expected = self._first_computed = False
        Variable._execution_engine.queue_callback(self._on_backward_end)
        self._listener.backward_began()
        if self._kept_pass == running_pass:
            for index in self._kept:
                self._gradients.gradient_early(index)
            self._kept = []
        self._timeline.resume()

    def _on_gradient(self, index: int) -> None:
        matters = self._timeline.matters
        if matters:
            self._timeline.computed(self._labels[index])
        if self._expected:
            self._on_output()
        if self._reducing_pass is not None:
            try:
                self._gradients.gradient_ready(index)
            except Exception as error:
                self._listener.gradient_failed(error)
                raise
        else:
            self._keep(index)
        if index == 0:
            self._first_computed = False
        if matters:
            self._timeline.resume()

    def _keep(self, index: int) -> None:
        """Take note of a gradient that comes before it is known whether the pass is reduced.

        That of a parameter that only the loss uses may come before the pass has reached any output.
        """
        running_pass = torch._C._current_graph_task_id()
        if self._kept_pass != running_pass:
            self._kept_pass, self._kept = running_pass, []
        self._kept.append(index)
        self._gradients.gradient_kept(index)

    def _on_first_computed(self) -> None:
        """Take note that the first parameter's gradient exists; accumulating it comes next."""
        self._first_computed = True

    def _on_backward_end(self) -> None:
        """End the pass behind the engine's callbacks that it has queued; hooks' futures wait for some."""
        self._timeline.computed("backward")
        Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._listener.backward_ended()
        self._reducing_pass = None
        if self._first_computed:
            self._first_computed = False
            warnings.warn(
                "torch.autograd.grad gave gradients of parameters of DistributedDataParallel, which are not "
                "averaged over the ranks; call backward(), which accumulates them in .grad",
                stacklevel=2,
            )

    def _abandon(self) -> None:
        self._reducing_pass = None
        self._listener.pass_abandoned()


def tensors_of(output: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, dataclasses and remote references that are owned here.

    Of a remote reference only its owner knows the tensors; whoever holds it elsewhere runs no backward pass.
    Classes derived from dict, list and tuple are leaves to pytree, and containers here, as in torch's DDP.
    """
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, dict):
            yield from tensors_of(list(leaf.values()))
        elif isinstance(leaf, list | tuple):
            yield from tensors_of(list(leaf))
        elif isinstance(leaf, REFERENCE):
            if leaf.is_owner():  # type: ignore[attr-defined]
                yield from tensors_of(leaf.local_value())  # type: ignore[attr-defined]
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from tensors_of(getattr(leaf, field.name))


def _gradient_hook(reference: weakref.ref[BackwardPasses], index: int) -> Callable[[object], None]:
    """Return `_weak` for `BackwardPasses._on_gradient`, which is called once per parameter: it costs less."""

    def hook(_: object) -> None:
        living = reference()
        if living is not None:
            living._on_gradient(index)

    return hook


def _weak(passes: BackwardPasses, method: Callable[..., None], *arguments: Any) -> Callable[[object], None]:
    """Return a hook that calls *method*, but does not keep the passes, and so the buckets, alive."""
    reference = weakref.ref(passes)

    def hook(_: object) -> None:
        living = reference()
        if living is not None:
            method(living, *arguments)

    return hook


def remove_handles(handles: Iterable[Any]) -> None:
    """Take hooks off again."""
    for handle in handles:
        handle.remove()


def _remove_all(watched: Mapping[int, Any], others: Iterable[Any]) -> None:
    remove_handles([*watched.values(), *others])
