"""Execution at the cost of a GPU's model that tells which storages each operation reads and writes.

Whoever looks for races (`collectives.virtual.diagnosis.races`) is told: what an operation's schema marks as
written is written, every other tensor among its arguments read, and results are written where they are new.
Views and what launches nothing touch no data.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from collectives.virtual.computation.operations import Operation, operation_of, tensors_in
from collectives.virtual.diagnosis.races import Races, RankAccesses
from collectives.virtual.gpu import copies
from collectives.virtual.gpu.charged_execution import ChargedExecution

_aten = torch.ops.aten
_ANSWERS = frozenset((_aten._local_scalar_dense.default, _aten.equal.default))
"""Operations that launch nothing, and whose answer is what is in a tensor."""
_TRANSFERS = frozenset((_aten._to_copy.default, _aten.copy_.default))


class FollowedExecution(ChargedExecution):
    """A `ChargedExecution` whose accesses are followed."""

    accesses: RankAccesses

    def follow(self, races: Races) -> None:
        """Let *races* be told of what this carries out from now on."""
        self.accesses = races.on(self.gpu, self.memory)
        self.born.append(self.accesses.born)

    def on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation on plain tensors of the CPU, or of none."""
        if self.accesses.has_pinned and not func.is_view:
            _, on_host = _touched(func, args, kwargs)
            if on_host:
                self.accesses.on_host(_name(func), on_host)
        return super().on_host(func, args, kwargs)

    def on_device(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        is_captured = self.gpu.graph is not None  # and so not carried out now
        if is_captured or known.is_view or (known.free and func not in _ANSWERS):
            return super().on_device(known, func, types, args, kwargs)
        on_device, on_host = _touched(func, args, kwargs)
        target = kwargs.get("device")
        is_on_device = bool(on_device) or (target is not None and target.type == "cuda")
        is_in_flight = is_on_device and func in _TRANSFERS and _is_in_flight(func, args, kwargs)
        if is_in_flight:
            self.accesses.has_pinned = True
            on_device, on_host = on_device + on_host, []
        if on_host and self.accesses.has_pinned:
            self.accesses.on_host(_name(func), on_host)
        if not is_on_device:
            return super().on_device(known, func, types, args, kwargs)

        name = _name(func)
        by = self.accesses.on_stream(name, on_device)
        result = super().on_device(known, func, types, args, kwargs)
        made = [own for own in tensors_in(result) if is_in_flight or _is_on_device(own)]
        if made:
            self.accesses.made(name, made, by)
        return result


_Touched: TypeAlias = list[tuple[Tensor, bool]]
"""Tensors, and whether each is written."""


def _touched(func: Any, args: Any, kwargs: Any) -> tuple[_Touched, _Touched]:
    """Return the tensors of the device among the arguments of a call, and those of the host."""
    changes = operation_of(func).changes
    on_device: _Touched = []
    on_host: _Touched = []
    for position, value in enumerate(args):
        writes = position in changes
        for tensor in value if type(value) in (list, tuple) else (value,):
            if type(tensor) is FakeTensor and tensor.fake_device.type == "cuda":
                on_device.append((tensor, writes))
            elif isinstance(tensor, Tensor):
                on_host.append((tensor, writes))
    for name, value in kwargs.items():
        for tensor in tensors_in(value):
            touched = on_device if _is_on_device(tensor) else on_host
            touched.append((tensor, name in changes.values()))
    return on_device, on_host


@cache
def _name(func: Any) -> str:
    name: str = func.overloadpacket.__name__
    return {"_local_scalar_dense": "item", "_to_copy": "a copy", "copy_": "a copy"}.get(name, name)


def _is_on_device(tensor: Tensor) -> bool:
    return type(tensor) is FakeTensor and tensor.fake_device.type == "cuda"


def _is_in_flight(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a copy between host and device goes on when the host does."""
    if not copies.is_non_blocking(func, args, kwargs):
        return False
    if func is _aten.copy_.default:
        target, source = args[:2]
        if _is_on_device(target) == _is_on_device(source):
            return False
        return copies.is_pinned(source if _is_on_device(target) else target)
    target, source = kwargs.get("device"), args[0]
    if target is None or target.type == source.device.type:
        return False
    return target.type == "cpu" or copies.is_pinned(source)
