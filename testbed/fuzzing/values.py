"""Values that a rank has computed, as a digest: tensors by their bits, all else that has a value by that.

Whatever prints differently from run to run, such as functions, modules of Python and clocks, does not count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_DEEP = 8
_NUMBER = r"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?"
_TIMED = re.compile(
    rf"{_NUMBER}\s*(?:[µun]?s|ms|min|h|sec\w*|hours?|it/s|[\w./]+/(?:s|sec|second|h))\b", re.IGNORECASE
)
_OF_TIME = re.compile(r"time|elapsed|took|/s\b|per second|throughput|tflop|mfu|eta\b|duration", re.IGNORECASE)
_DATED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*|\b\d\d:\d\d:\d\d[.,\d]*")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def digest(value: Any) -> str:
    """Return the digest of all tensors, numbers and texts in *value*."""
    state = hashlib.sha256()
    _add(state, value, 0, set())
    return state.hexdigest()[:16]


def tensors_of(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return what in the globals of a script is of tensors; numbers there may be times."""
    import torch

    kinds = (torch.Tensor, torch.nn.Module)
    return {name: own for name, own in namespace.items() if isinstance(own, kinds)}


def without_times(line: str) -> str:
    """Return *line* without what it says of times: of a line that speaks of time, without any number."""
    line = _ADDRESS.sub("…", _DATED.sub("…", line))
    if _OF_TIME.search(line):
        return re.sub(_NUMBER, "…", line)
    return _TIMED.sub("…", line)


def _add(state: Any, value: Any, depth: int, seen: set[int]) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        _add_tensor(state, value)
    elif isinstance(value, float):
        state.update(f"float {value.hex()};".encode())
    elif isinstance(value, _PLAIN):
        state.update(f"{type(value).__name__} {value!r};".encode())
    elif depth < _DEEP and id(value) not in seen:
        seen.add(id(value))
        for key, part in _parts(value):
            state.update(f"{key}:".encode())
            _add(state, part, depth + 1, seen)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return what *value* consists of, as far as that has values."""
    import torch

    if isinstance(value, torch.nn.Module):
        return [*value.named_parameters(), *value.named_buffers()]
    if isinstance(value, torch.optim.Optimizer):
        return [(str(number), group["params"]) for number, group in enumerate(value.param_groups)]
    if isinstance(value, Mapping):
        return [(repr(key), part) for key, part in value.items() if isinstance(key, _PLAIN)]
    if isinstance(value, list | tuple):
        return [(str(number), part) for number, part in enumerate(value)]
    return []


def _add_tensor(state: Any, tensor: torch.Tensor) -> None:
    import torch

    from collectives.virtual.gpu.values import value_of

    local = getattr(tensor, "to_local", None)  # of a DTensor
    tensor = (tensor if local is None else local()).detach()
    state.update(f"{tensor.dtype} {tuple(tensor.shape)};".encode())
    value = None if tensor.device.type == "meta" else value_of(tensor)  # of a GPU that is not there
    if value is not None and value.layout is torch.strided:
        flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        state.update(flat.view(torch.uint8).numpy().tobytes())
