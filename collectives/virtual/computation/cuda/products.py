"""Matrix products on a GPU: time by tiles of the result and waves of tiles.

A product of m × k and k × n is cut into tiles of the result, which the multiprocessors take in waves; a last
wave that is not full takes as long as a full one.  Each tile takes its share of the rate that full tiles
sustain, less for tiles that are small, and a fixed depth more for its beginning and end.  Where a result has
too few tiles for all multiprocessors its depth may be split, and the parts are summed through memory.  Of
all tiles and splits the fastest is taken, as cuBLAS's heuristics and autotuning mean to; the operands' way
through memory bounds it from below.

Tiles and their rates are those of CUTLASS's usual shapes; they are fixed, none is fitted to a device.
In float32 and float64 without tensor cores small tiles reach the rate of large ones.
"""

from __future__ import annotations

from functools import lru_cache

from sim.units import SECOND

_TILES = ((256, 128, 100), (128, 256, 100), (128, 128, 92), (128, 64, 75), (64, 64, 55))
"""Rows and columns of a tile, and the part of the sustained rate that it reaches, in percent."""
_EDGE_DEPTH = 128
"""Depth whose time a tile's prologue and epilogue take."""
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
_LEAST_DEPTH = 1024
"""Depth that each part of a split has at least."""
_WAVES_TO_SPLIT = 2
"""Waves up to which a depth is split."""


@lru_cache(maxsize=65536)
def product_ps(
    shape: tuple[int, int, int],
    batch: int,
    rate: int,
    multiprocessors: int,
    bandwidth: int,
    tensor_cores: bool = True,
) -> int:
    """Return how long the arithmetic of a product takes, in picoseconds, without its launch.

    Args:
        shape: m, n and k of one of the batch.
        batch: how many products the kernel computes.
        rate: operations per second that full tiles sustain on all multiprocessors.
        multiprocessors: of the device.
        bandwidth: bytes per second of its memory, over which the parts of a split are summed.
        tensor_cores: small tiles reach less than large ones.
    """
    m, n, k = shape
    if not m * n * k * batch:
        return 0
    return min(
        _tiled_ps(shape, batch, tile, split, rate, multiprocessors, bandwidth, tensor_cores)
        for tile in _TILES
        for split in _SPLITS
        if split == 1 or _splits(shape, batch, tile, split, multiprocessors)
    )


def _tiles(shape: tuple[int, int, int], batch: int, tile: tuple[int, int, int]) -> int:
    return -(-shape[0] // tile[0]) * -(-shape[1] // tile[1]) * batch


def _splits(
    shape: tuple[int, int, int], batch: int, tile: tuple[int, int, int], split: int, multiprocessors: int
) -> bool:
    """Return whether the depth may be cut into *split* parts."""
    deep = shape[2] >= split * _LEAST_DEPTH
    return deep and _tiles(shape, batch, tile) * split <= _WAVES_TO_SPLIT * multiprocessors


def _tiled_ps(
    shape: tuple[int, int, int],
    batch: int,
    tile: tuple[int, int, int],
    split: int,
    rate: int,
    multiprocessors: int,
    bandwidth: int,
    tensor_cores: bool,
) -> int:
    """Return the time of one way to cut a product, rounded up once for tiles and once for sums."""
    m, n, k = shape
    rows, columns, percent = tile
    waves = -(-_tiles(shape, batch, tile) * split // multiprocessors)

    # (k / split + edge) deep, on one of the multiprocessors' equal shares of the rate
    operations = waves * 2 * rows * columns * (k + split * _EDGE_DEPTH) * multiprocessors * 100
    reached = rate * split * (percent if tensor_cores else 100)
    tiling_ps = -(-operations * SECOND // reached)
    if split == 1:
        return tiling_ps
    return tiling_ps + -(-8 * m * n * batch * split * SECOND // bandwidth)
