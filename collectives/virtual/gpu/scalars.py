"""Numbers that C++ reads from virtual CUDA tensors below all modes, as `torch.tensor([loss, 1.0])` does.

It keeps Python out of what it calls then, and looks for a kernel of CUDA.  The one here lets Python in again,
so that the number is read as ``item()`` reads it: at its time, and with the notices of a run without data.

Source: torch, csrc/utils/tensor_new.cpp (``internal_new_from_data``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_KEPT_OUT = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Let C++ read numbers of virtual CUDA tensors, from now on; for real ones nothing changes."""
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("aten", "IMPL")
    library.impl("_local_scalar_dense", _number, "CUDA")
    _libraries.append(library)


def _number(tensor: Tensor) -> Any:
    with _python_let_in():
        return torch.ops.aten._local_scalar_dense.default(tensor)


@contextlib.contextmanager
def _python_let_in() -> Iterator[None]:
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in _KEPT_OUT]
    try:
        for key in _KEPT_OUT:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        yield
    finally:
        for key, was_kept_out in zip(_KEPT_OUT, before, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_kept_out)
