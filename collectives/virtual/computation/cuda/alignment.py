"""Rows of matrices that do not begin where tensor cores can load them, and what products lose by it.

Tensor cores load 16 bytes at once.  A matrix whose rows are no multiple of that, such as the logits of
GPT-2's vocabulary of 50,257, is taken in smaller pieces by cuBLAS: two to six times slower in eager mode.
Inductor pads such matrices, so compiled regions lose nothing.

What is assumed: rows that lie apart by a multiple of 8 elements of 16 bits (4 of tfloat32) cost nothing, of
2 or 4 (2) twice, of an odd number five times; two publications of GPT-2 trained with either vocabulary imply
five to six.  Results count as operands do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_ALIGNED: Mapping[str, int] = {"bfloat16": 8, "float16": 8, "tfloat32": 4}
_SLOWER = {1: 5, 2: 2, 4: 2}


def slower(matrices: Iterable[Any], dtype: str) -> int:
    """Return how many times as long a product of *matrices*, operands and result, takes in eager mode."""
    aligned = _ALIGNED.get(dtype)
    if aligned is None:
        return 1
    apart = 0
    for matrix in matrices:
        apart |= _between_rows(matrix)
    return _SLOWER.get(apart & -apart, 1) if apart % aligned else 1


def _between_rows(matrix: Any) -> int:
    """Return how many elements the rows of a matrix lie apart, whichever of its two ways they lie."""
    *_, rows, columns = matrix.stride()
    height, width = matrix.shape[-2:]
    if height == 1 or width == 1:
        return 0
    return int(max(rows, columns))
