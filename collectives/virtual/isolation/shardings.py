"""Shardings of DTensor's operations, found once for all ranks and runs of a process.

Torch keeps them for each thread, and a rank is a thread that ends with its run: to find that of each
operation again, on tensors without data, is most of the time of a short test with FSDP2.  What is found
follows from the operation, its arguments' placements and shapes, and the shape of the mesh; not from the
rank, but for operations of which torch makes arguments local: theirs are found each time.  What is kept
knows no mesh, as that holds the process groups of a rank; a rank gets it with its own.

On meshes of GPUs they are found once for an attempt, as that tells, too, which of its ranks are alike
(`collectives.virtual.folding`).  Operations with rules of others than torch's own `_ops`, placements that are
not torch's, and meshes of the host's where GPUs are modelled, are left alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from collectives.virtual.isolation.patching import Replacement
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import Cluster

FIND = "propagate_op_sharding_non_cached"
_RULES = "torch.distributed.tensor._ops."
_PLACEMENTS = "torch.distributed.tensor.placement_types"
_PLAIN = frozenset(
    (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
_SEVERAL = (tuple, list, torch.Size)
_KEPT = 1 << 14
"""Shardings that are kept."""

_shardings: dict[Any, _Sharding] = {}


def replacements() -> Iterator[Replacement]:
    """Yield what stands in DTensor while ranks run; nothing where nobody has imported it."""
    module: Any = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if hasattr(getattr(module, "ShardingPropagator", None), FIND):
        yield module.ShardingPropagator, FIND, _found_once(module)


def of_gpus(module: Any) -> Callable[[Any, Any], Any]:
    """Return what finds a sharding, given torch's *module*, for meshes of GPUs."""
    return _found_once(module, "cuda")


def _found_once(module: Any, device_type: str = "cpu") -> Callable[[Any, Any], Any]:
    """Return a method of ``ShardingPropagator`` that asks torch's once for what is alike."""
    find = getattr(module.ShardingPropagator, FIND)

    @functools.wraps(find)
    def found(propagator: Any, schema: Any) -> Any:
        kept = _kept_for(device_type)
        if kept is None:
            return find(propagator, schema)
        question = _Question(module, device_type)
        try:
            key = question.key_of(propagator, schema)
            known = kept.get(key)
        except (_NotAlikeError, TypeError):  # a symbol has no hash
            return find(propagator, schema)
        if known is None:
            sharding = find(propagator, schema)
            if sharding.use_val_from_redistribute_schema:
                return sharding
            try:
                known = question.kept(sharding)
            except _NotAlikeError:
                return sharding
            if len(kept) >= _KEPT:
                kept.clear()
            kept[key] = known
        return question.answered(known)

    return found


def _kept_for(device_type: str) -> dict[Any, _Sharding] | None:
    """Return the shardings that have been found for meshes of *device_type*; None on ranks of others."""
    if device_type == "cpu":
        return _shardings if current_gpu() is None else None
    here = Cluster.current()
    return None if here is None else here.cluster.shared.setdefault(FIND, {})


class _NotAlikeError(Exception):
    """What a sharding follows from may differ from rank to rank, or is not torch's."""


@dataclass(frozen=True)
class _Sharding:
    """What is kept of an ``OutputSharding``: specifications without their meshes.

    Attributes:
        output: of the operation.
        inputs: operation, arguments, options and what is said of them, where torch redistributes; or None.
        redistributes: whether it does.
    """

    output: Any
    inputs: tuple[Any, ...] | None
    redistributes: bool


class _Question:
    """One operation of one rank, whose sharding is asked for."""

    def __init__(self, module: Any, device_type: str) -> None:
        self._module = module
        self._device_type = device_type
        self._mesh: Any = None

    def key_of(self, propagator: Any, schema: Any) -> Any:
        """Return all that the sharding of *schema* follows from.

        Raises:
            _NotAlikeError: something of it is not known to be alike on all ranks.
        """
        tables = propagator.op_strategy_funcs, getattr(propagator, "op_single_dim_strategy_funcs", {})
        rules = [table[schema.op] for table in tables if schema.op in table]
        functions = tuple(getattr(rule, "func", rule) for rule in rules)
        if not rules or not all(_module_of(function).startswith(_RULES) for function in functions):
            raise _NotAlikeError
        compared = self._alike(schema._comparison_key, only_kinds=False)
        given = self._alike([schema.args_schema, *schema.kwargs_schema.items()], only_kinds=True)
        mesh = self._mesh
        if mesh is None or mesh.device_type != self._device_type:
            raise _NotAlikeError
        takes_part = mesh.get_coordinate() is not None
        return functions, compared, given, tuple(mesh.shape), mesh.mesh_dim_names, takes_part

    def _alike(self, part: Any, *, only_kinds: bool) -> Any:
        """Return *part* of what is asked in a form without meshes; of plain values *only_kinds*."""
        if isinstance(part, self._module.DTensorSpec):
            self._note_mesh(part.mesh)
            if any(_module_of(type(own)) != _PLACEMENTS for own in part.placements):
                raise _NotAlikeError
            if only_kinds:
                return "tensor"
            flag = getattr(part, "use_strided_shard_as_shard_order", None)
            return part.placements, getattr(part, "shard_order", None), flag, part.tensor_meta
        if type(part) in _SEVERAL:
            return type(part), tuple(self._alike(own, only_kinds=only_kinds) for own in part)
        if isinstance(part, torch._ops.OpOverload):
            return part
        if type(part) not in _PLAIN:
            raise _NotAlikeError
        return type(part) if only_kinds else (type(part), part)

    def _note_mesh(self, mesh: Any) -> None:
        if self._mesh is None:
            self._mesh = mesh
        elif self._mesh is not mesh and self._mesh != mesh:
            raise _NotAlikeError

    def kept(self, sharding: Any) -> _Sharding:
        """Return what is kept of *sharding*, which was found for this rank.

        Raises:
            _NotAlikeError: it holds something else than was asked for.
        """
        inputs = sharding.redistribute_schema
        if inputs is not None:
            inputs = (
                inputs.op,
                self._on(None, inputs.args_schema),
                self._on(None, inputs.kwargs_schema),
                inputs.schema_info,
            )
        return _Sharding(self._on(None, sharding.output_spec), inputs, sharding.needs_redistribute)

    def answered(self, known: _Sharding) -> Any:
        """Return what is *known*, on the mesh of this rank, as an ``OutputSharding`` of its own."""
        inputs, mesh = known.inputs, self._mesh
        if inputs is not None:
            op, args, options, info = inputs
            inputs = self._module.OpSchema(op, self._on(mesh, args), self._on(mesh, options), info)
        return self._module.OutputSharding(self._on(mesh, known.output), inputs, known.redistributes)

    def _on(self, mesh: Any, part: Any) -> Any:
        """Return a copy of *part* whose specifications are on *mesh*."""
        kind = self._module.DTensorSpec
        if isinstance(part, kind):
            if mesh is None:
                self._note_mesh(part.mesh)
            copied = object.__new__(kind)
            copied.__dict__.update(part.__dict__, mesh=mesh, _hash=None)
            return copied
        if isinstance(part, dict):
            return {name: self._on(mesh, own) for name, own in part.items()}
        if type(part) in _SEVERAL:
            return type(part)([self._on(mesh, own) for own in part])
        if type(part) not in _PLAIN:
            raise _NotAlikeError
        return part


def _module_of(thing: Any) -> str:
    return str(getattr(thing, "__module__", ""))
