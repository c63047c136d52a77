"""Record of the parameters of every model of a run: before each step of training, and at the end.

A model is an outermost module that a rank calls.  Its parameters are noted when it is called for the first
time in an iteration, which is after everything that a step may consist of, such as the broadcast of a
sharded optimizer; and once more when the rank has finished.  Gradients are noted when an optimizer is about
to use them.  Parameters of an optimizer that no module called so far has are a model of their own.

Buffers, the state of optimizers and loss scalers are noted whenever parameters are (`state`).

Reading takes no virtual time, and needs tensors with values.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.isolation.patching import observed, replaced
from collectives.virtual.parameters.held import Held, Placed, flat_shards
from collectives.virtual.parameters.state import StateName, buffers_of, kept_by, own_name, unwrapped
from sim.cluster import RankThread, current_rank_thread

ModelKey = tuple[str, int]
"""Class of a model, and how many of that class the rank has called before it."""


@dataclass
class Snapshots:
    """What one rank has held of one model.

    Attributes:
        before: of parameters by name, before each iteration, by how many the rank had finished.
        gradients: used by the step that follows, by the same number.
        places: of the step of the optimizer in the user's code, by the same number.
        at_end: of parameters by name, when the rank had finished.
        state: what is beside the parameters, by the same number; None: when the rank had finished.  What an
            optimizer keeps and is zero is not in it, as for a parameter that another rank steps.
        left_out: names of buffers that are not in *state*, by why they are not.
    """

    before: dict[int, Mapping[str, Held]] = field(default_factory=dict)
    gradients: dict[int, Mapping[str, Held]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)
    at_end: Mapping[str, Held] = field(default_factory=dict)
    state: dict[int | None, Mapping[StateName, Held]] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


class ParameterRecord:
    """Parameters of the models of one run; `collectives.virtual.run` fills it.

    Args:
        kept_steps: of so many steps, from the first, values are kept beside digests.
    """

    def __init__(self, kept_steps: int = 0) -> None:
        self.kept_steps = kept_steps
        self.models: defaultdict[ModelKey, dict[int, Snapshots]] = defaultdict(dict)
        self._of_rank: defaultdict[int, _Models] = defaultdict(_Models)

    @contextlib.contextmanager
    def recorded(self, finished: Callable[[int], int]) -> Iterator[None]:
        """Record meanwhile; *finished* says how many iterations a rank has finished."""

        def called(module: nn.Module, args: Any) -> None:
            rank_thread = current_rank_thread()
            if rank_thread is not None:
                self._call(rank_thread, module, finished(rank_thread.rank))

        def stepping(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            rank_thread = current_rank_thread()
            if rank_thread is not None:
                self._step(rank_thread, optimizer, finished(rank_thread.rank))

        def scaled(
            rank_thread: RankThread, scaler: GradScaler, optimizer: Optimizer, *_: Any, **__: Any
        ) -> None:
            self._of_rank[rank_thread.rank].scalers[scaler] = optimizer

        with (
            register_module_forward_pre_hook(called),
            register_optimizer_step_pre_hook(stepping),
            replaced([(GradScaler, "step", observed(GradScaler.step, before=scaled))]),
        ):
            try:
                yield
            finally:
                self._of_rank.clear()

    def end(self, rank_thread: RankThread) -> None:
        """Note what the rank holds in the end, on its thread."""
        with _untimed(rank_thread):
            for model in self._of_rank[rank_thread.rank].models():
                snapshots = self._of(model.key, rank_thread)
                snapshots.at_end = model.held(model.parameters, bool(self.kept_steps))
                self._note_state(rank_thread, model, None)

    def digests(self) -> dict[tuple[ModelKey, int, str], bytes]:
        """Return the digest of each parameter at the end, by model, rank and name."""
        return {
            (key, rank, name): held.digest
            for key, by_rank in self.models.items()
            for rank, snapshots in by_rank.items()
            for name, held in snapshots.at_end.items()
        }

    def _call(self, rank_thread: RankThread, module: nn.Module, finished: int) -> None:
        key = self._of_rank[rank_thread.rank].key_of(module)
        if key is None or finished in self._of(key, rank_thread).before:
            return
        with _untimed(rank_thread):
            self._note(rank_thread, _Model.of(key, module, dict(_named(module))), finished)

    def _step(self, rank_thread: RankThread, optimizer: Optimizer, finished: int) -> None:
        models = self._of_rank[rank_thread.rank]
        models.add_optimizer(optimizer)
        place = current_place()
        with _untimed(rank_thread):
            for model in models.models():
                snapshots, keeps = self._of(model.key, rank_thread), finished < self.kept_steps
                if finished not in snapshots.before:
                    self._note(rank_thread, model, finished)
                gradients = {
                    name: parameter.grad
                    for name, parameter in model.parameters.items()
                    if parameter.grad is not None
                }
                if gradients:
                    known = snapshots.gradients.get(finished, {})
                    snapshots.gradients[finished] = {**known, **model.held(gradients, keeps)}
                snapshots.places.setdefault(finished, place)

    def _note(self, rank_thread: RankThread, model: _Model, finished: int) -> None:
        """Note what the rank holds of a model before an iteration."""
        before = self._of(model.key, rank_thread).before
        before[finished] = model.held(model.parameters, finished <= self.kept_steps)
        self._note_state(rank_thread, model, finished)

    def _note_state(self, rank_thread: RankThread, model: _Model, finished: int | None) -> None:
        """Note what the rank holds beside the parameters of a model."""
        snapshots, models = self._of(model.key, rank_thread), self._of_rank[rank_thread.rank]
        names = {id(parameter): name for name, parameter in model.parameters.items()}
        state = dict(kept_by(models.optimizers, models.scalers, names))
        if isinstance(model.owner, nn.Module):
            buffers, snapshots.left_out = buffers_of(model.owner)
            state |= buffers
        snapshots.state[finished] = {
            name: held
            for name, own in state.items()
            if not (
                (held := Held.of(own, False, model.placed.get(name.parameter))).is_zero and name.parameter
            )
        }

    def _of(self, key: ModelKey, rank_thread: RankThread) -> Snapshots:
        return self.models[key].setdefault(rank_thread.rank, Snapshots())


class _Model(NamedTuple):
    """A model of one rank: what has its parameters, these by name, and where shards of FSDP1 lie."""

    key: ModelKey
    owner: nn.Module | Optimizer
    parameters: Mapping[str, Tensor]
    placed: Mapping[str, Placed]

    @classmethod
    def of(cls, key: ModelKey, owner: nn.Module | Optimizer, parameters: Mapping[str, Tensor]) -> _Model:
        """Return the model, with where its shards lie."""
        return cls(key, owner, parameters, flat_shards(owner))

    def held(self, tensors: Mapping[str, Tensor], keep_values: bool) -> dict[str, Held]:
        """Return what this rank holds of the parameters, or of their gradients."""
        return {name: Held.of(own, keep_values, self.placed.get(name)) for name, own in tensors.items()}


class _Models:
    """The models of one rank, in the order in which they were first called.

    Attributes:
        optimizers: those that have stepped.
        scalers: of losses, each with the optimizer whose steps it takes.
    """

    def __init__(self) -> None:
        self.scalers: dict[GradScaler, Optimizer] = {}
        self.optimizers: dict[Optimizer, None] = {}
        self._keys: dict[nn.Module | Optimizer, ModelKey] = {}
        self._parts: set[nn.Module] = set()
        self._counts: Counter[str] = Counter()

    def key_of(self, module: nn.Module) -> ModelKey | None:
        """Return the key of a module that is called; None if it is a part of a model, or empty."""
        if module in self._keys:
            return self._keys[module]
        if module in self._parts or next(module.parameters(), None) is None:
            return None
        for part in module.modules():
            self._keys.pop(part, None)  # called alone before
            self._parts.add(part)
        return self._new(module, _class_of(unwrapped(module)).__name__)

    def add_optimizer(self, optimizer: Optimizer) -> None:
        """Let the parameters of *optimizer* be a model, if they are of none."""
        self.optimizers[optimizer] = None
        if optimizer not in self._keys and _of_optimizer(optimizer, self._ids()):
            self._new(optimizer, type(optimizer).__name__)

    def models(self) -> Iterator[_Model]:
        """Yield every model that has parameters."""
        known = self._ids()
        for owner, key in self._keys.items():
            named = dict(_named(owner)) if isinstance(owner, nn.Module) else _of_optimizer(owner, known)
            if named:
                yield _Model.of(key, owner, named)

    def _ids(self) -> set[int]:
        modules = [owner for owner in self._keys if isinstance(owner, nn.Module)]
        return {id(parameter) for module in modules for parameter in module.parameters()}

    def _new(self, owner: nn.Module | Optimizer, name: str) -> ModelKey:
        self._keys[owner] = key = name, self._counts[name]
        self._counts[name] += 1
        return key


def _class_of(module: nn.Module) -> type:
    """Return the class of a model, which ``fully_shard`` replaces by one that has it as its second base."""
    kind = type(module)
    return kind.__bases__[1] if kind.__bases__[0] is FSDPModule else kind


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of a model by the names that they have without wrappers."""
    for name, parameter in module.named_parameters():
        yield own_name(name), parameter


def _of_optimizer(optimizer: Optimizer, known: set[int]) -> dict[str, Tensor]:
    """Return the parameters of *optimizer* that are not *known*, by their numbers."""
    parameters = [own for group in optimizer.param_groups for own in group["params"]]
    return {f"parameter {number}": own for number, own in enumerate(parameters) if id(own) not in known}


@contextlib.contextmanager
def _untimed(rank_thread: RankThread) -> Iterator[None]:
    """Let what is done meanwhile be no computation of the rank."""
    rank_thread.now_ps()
    with _disable_current_modes():
        yield
    if rank_thread.meter is not None:
        rank_thread.meter()
