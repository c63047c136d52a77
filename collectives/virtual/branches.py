"""Branches of ``torch.cond`` on ranks: the one that the data says is carried out, as any other code.

Torch alone would trace both branches with its compiler, which keeps what it has compiled for the process and
does not look below modes.  So on ranks the branch that is not taken is neither run nor compared with the
other one.  Gradients of what only that branch uses are None; torch's are zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from collectives.virtual.gpu import data_dependent
from collectives.virtual.gpu.values import value_of
from collectives.virtual.isolation.patching import replaced


def branches_of_torch(is_rank: Callable[[], bool]) -> AbstractContextManager[None]:
    """Return a context in which ``torch.cond`` takes branches on ranks.

    Args:
        is_rank: returns whether this thread is a rank's.
    """
    original = torch.cond

    @functools.wraps(original)
    def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
        if not isinstance(pred, Tensor) or not is_rank() or torch.compiler.is_compiling():
            return original(pred, true_fn, false_fn, operands)
        _check(pred, true_fn, false_fn, operands)
        if isinstance(pred, FakeTensor) and value_of(pred) is None:
            data_dependent.refuse("the branch that torch.cond takes")
        return true_fn(*operands) if pred else false_fn(*operands)

    return replaced([(torch, "cond", cond)])


def _check(pred: Tensor, true_fn: Any, false_fn: Any, operands: Any) -> None:
    """Check arguments as torch does.

    Raises:
        RuntimeError: torch would refuse them.
    """
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    are_tensors = pytree.tree_all(lambda leaf: isinstance(leaf, Tensor), operands)
    if not isinstance(operands, (tuple, list)) or not are_tensors:
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands}."
        )
