"""Operators of ``torch.ops._c10d_functional`` that C++ does not lead to a process group written in Python.

A process group in Python takes the calls that C++ forwards to it, and ``all_gather_into_tensor_out`` makes
one that is not among them.  Here it does in Python what ``Functional.cpp`` of torch does in C++: call the
group, and let ``wait_tensor`` find the work.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

_c10d: Any = torch._C._distributed_c10d


@functools.cache
def implement_out_variants() -> torch.library.Library:
    """Give ``all_gather_into_tensor_out`` a kernel for every kind of group, until the process ends."""
    library = torch.library.Library("_c10d_functional", "IMPL")
    for key in ("CPU", "CUDA"):
        library.impl("all_gather_into_tensor_out", _all_gather_into_tensor_out, key)
    return library


def _all_gather_into_tensor_out(
    tensor: torch.Tensor, group_size: int, group_name: Any, *, out: torch.Tensor
) -> torch.Tensor:
    group = _c10d._resolve_process_group(group_name) if isinstance(group_name, str) else group_name
    _c10d._register_work(out, group.all_gather_single(out, tensor))
    return out
