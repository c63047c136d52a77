"""Convolutions as the matrix products that they are: implicit GEMM, as cuDNN's kernels compute them.

The result of each picture's point is a row, each output channel a column, and what a filter covers the
depth; the gradients of inputs and of weights are products of the same three sizes in other roles.  Groups
are a batch of products.  Padding to tiles costs as in any product.  Pictures that are not stored channels
last are taken as if they were: the copies that cuDNN makes of them are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

Product = tuple[tuple[int, int, int], int]
"""m, n and k of a product, and how many of them a kernel computes."""


def forward_product(named: Mapping[str, Any], result: Any) -> Product:
    """Return the product of a convolution whose arguments are *named* and that gives *result*."""
    points, inputs, outputs, window, groups = _sizes(named, result)
    if named["transposed"]:
        return (points, inputs * window, outputs), groups
    return (points, outputs, inputs * window), groups


def backward_products(named: Mapping[str, Any]) -> Sequence[Product]:
    """Return the products of a backward pass: of the gradients that are asked for, inputs and weights."""
    points, inputs, outputs, window, groups = _sizes(named, named["grad_output"])
    wants_input, wants_weight, _ = named["output_mask"]
    of_pictures = prod(named["input"].shape[2:]) * named["input"].shape[0]

    products: list[Product] = []
    if wants_input:
        strided = not named["transposed"] and of_pictures > points
        depth = outputs * window * points // of_pictures if strided else outputs * window
        products.append(((of_pictures if strided else points, inputs, max(1, depth)), groups))
    if wants_weight:
        products.append(((outputs, inputs * window, points), groups))
    return products


def _sizes(named: Mapping[str, Any], pictures: Any) -> tuple[int, int, int, int, int]:
    """Return points of the pictures, inputs and outputs of a group, elements of a filter, and groups."""
    weight, groups = named["weight"], named["groups"]
    window = prod(weight.shape[2:])
    if named["transposed"]:
        # a transposed convolution is the gradient of one whose results are its inputs
        given = named["input"]
        points = given.shape[0] * prod(given.shape[2:])
        return points, weight.shape[1], weight.shape[0] // groups, window, groups
    points = pictures.shape[0] * prod(pictures.shape[2:])
    return points, weight.shape[1], weight.shape[0] // groups, window, groups
