"""Sparse tensors on virtual CUDA devices: what torch's FakeTensors do not bear is refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from collectives.errors import NotSupportedError


def refuse_if_sparse(func: Any, args: Any, kwargs: Any, error: Exception) -> None:
    """Say of an operation that has ended in *error* that it is one on sparse tensors, if it is.

    Raises:
        NotSupportedError: it is.
    """
    given = tree_leaves((args, kwargs))
    layouts = {value.layout if isinstance(value, Tensor) else value for value in given}
    layouts = {layout for layout in layouts if isinstance(layout, torch.layout)} - {torch.strided}
    if layouts or "sparse" in str(func):
        said = str(error).split(". ")[0]
        raise NotSupportedError(
            f"{func} does not go with sparse tensors on virtual CUDA devices ({said}); keep them on the CPU, "
            "or take dense ones, such as the gradients of nn.Embedding(sparse=False)"
        ) from None
