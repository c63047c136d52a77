"""Matrix products on a GPU: time by tiles of the result, waves of tiles, edges, load and memory.

A product of m × k and k × n is cut into tiles of the result, which the multiprocessors take in waves.  Each
tile takes its share of the rate that the largest reach, less for tiles that are small, and a fixed depth more
for its beginning and end; a last wave that is not full takes as long as a full one, or nearly.  Where a
result has too few tiles for all multiprocessors its depth may be split, and the parts are summed through
memory.  Of all tiles and splits the fastest is taken, as cuBLAS's heuristics and autotuning mean to.  The
operands' way through memory runs beside this; the two delay each other where they are about as long
(fourth powers), and a launch comes before.

Of a burst, the first milliseconds of a cool board, long kernels lose some of their rate by their end; a
training step goes at a rate of its own (`sim.hardware.products`).

Tiles are those of CUTLASS's and cuBLAS's usual shapes, the same on every device; the constants are fitted
(``python -m benchmarks.lab.kernels``, docs/modelling_kernels.md).  Only sums, products, quotients and roots
are taken, which every processor rounds alike.

Rows that do not begin where tensor cores can load them cost more.  These load 16 bytes at once; a matrix
whose rows are no multiple of that, such as the logits of GPT-2's vocabulary of 50,257, is taken in smaller
pieces by cuBLAS: two to six times slower in eager mode.  Inductor pads such matrices, so compiled regions
lose nothing.  What is assumed: rows that lie apart by a multiple of 8 elements of 16 bits (4 of tfloat32)
cost nothing, of 2 or 4 (2) twice, of an odd number five times; two publications of GPT-2 trained with
either vocabulary imply five to six.  Results count as operands do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import sqrt
from typing import Any

from sim.hardware import Clocks, ProductConstants
from sim.units import SECOND

_TILES = (
    (256, 256), (256, 128), (128, 256), (128, 192), (192, 128), (128, 128),
    (128, 64), (64, 128), (64, 64), (64, 32), (32, 64),
)  # fmt: skip
_LARGEST = 256
_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
_LEAST_DEPTH = 256
"""Depth that each part of a split has at least."""
_WAVES_TO_SPLIT = 2
"""Waves up to which a depth is split."""
_LOADED_SECONDS = 1e-3
"""How long a kernel has to run at the burst's rate to have lost all that it loses."""


@lru_cache(maxsize=65536)
def product_ps(
    shape: tuple[int, int, int],
    batch: int,
    nbytes: int,
    constants: ProductConstants,
    multiprocessors: int,
    clocks: Clocks = "training",
) -> int:
    """Return how long a product takes, its launch included, in picoseconds.

    Args:
        shape: m, n and k of one of the batch.
        batch: how many products the kernel computes.
        nbytes: operands and results; 0 leaves the memory out.
        constants: of products of this type.
        multiprocessors: of the device.
        clocks: of a short run, of a long one, or in training.
    """
    m, n, k = shape
    if not m * n * k * batch:
        return 0
    computing = tiles_seconds(shape, batch, constants, multiprocessors, clocks)
    moving = nbytes / constants.bandwidth
    return round(together(computing, moving) * SECOND) + constants.launch_ps


def together(computing: float, moving: float) -> float:
    """Return what arithmetic and memory take beside each other, in their unit."""
    return sqrt(sqrt(computing * computing * computing * computing + moving * moving * moving * moving))


def tiles_seconds(
    shape: tuple[int, int, int],
    batch: int,
    constants: ProductConstants,
    multiprocessors: int,
    clocks: Clocks,
) -> float:
    """Return how long the arithmetic of a product takes, in seconds."""
    m, n, k = shape
    rate = constants.rate(clocks)
    best = float("inf")
    for rows, columns in _TILES:
        tiles = -(-m // rows) * -(-n // columns) * batch
        reached = rate * tile_part(constants.small, rows, columns)
        for split in _SPLITS:
            if split > 1 and (k < split * _LEAST_DEPTH or tiles * split > _WAVES_TO_SPLIT * multiprocessors):
                break
            full = -(-tiles * split // multiprocessors)
            filled = max(tiles * split / multiprocessors, 1.0)
            waves = constants.wave * full + (1 - constants.wave) * filled
            depth = k / split + constants.edge
            seconds = waves * 2 * rows * columns * depth * multiprocessors / reached
            if split > 1:
                seconds += 8 * m * n * batch * split / constants.bandwidth
            best = min(best, seconds)
    if clocks != "burst":
        return best
    return best * (1 + constants.load * min(1.0, 2 * m * n * k * batch / rate / _LOADED_SECONDS))


def tile_part(
    small: float, rows: int, columns: int, largest: tuple[int, int] = (_LARGEST, _LARGEST)
) -> float:
    """Return the part of the largest tile's rate that one of *rows* × *columns* reaches."""
    return (1 + small * (1 / largest[0] + 1 / largest[1])) / (1 + small * (1 / rows + 1 / columns))


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
