"""Layers of routed experts: grouped products, and the whole layer that libraries run as a few kernels.

Each expert's rows are padded to whole tiles, all experts' tiles share the multiprocessors, and the weights
of experts that have rows are read once.  A layer adds what routing and permutation take for every row and
every expert, and a floor.

Which rows go to which expert, tensors without data do not say: `grouped_product_ps` has all experts have the
same.  `rows_of_experts` draws them from a power law, and gives those of the busiest rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from random import Random

from collectives.virtual.computation.cuda.products import tile_part, together
from sim.hardware import Device, ExpertConstants
from sim.units import SECOND

_ROWS = (16, 32, 64, 128)
_COLUMNS = 128
_REFERENCE = (64, _COLUMNS)
_DRAWS = 16


@dataclass(frozen=True)
class ExpertLayer:
    """The share of one rank in a layer of routed experts.

    Attributes:
        tokens: that enter the layer of all ranks.
        hidden: width of a token.
        inner: width of an expert, on this rank.
        rows: of each expert of this rank, of tokens that are routed to it.
        gated: its first product is twice as wide (SwiGLU).
        bytes_each: of a weight.
        elsewhere: rows of those tokens that are routed to experts of other ranks.
    """

    tokens: int
    hidden: int
    inner: int
    rows: tuple[float, ...]
    gated: bool = True
    bytes_each: float = 2.0
    elsewhere: float = 0.0


def layer_ps(layer: ExpertLayer, constants: ExpertConstants, device: Device, dtype: str) -> int:
    """Return how long a layer takes, in picoseconds, with kernels of these *constants* in *dtype*."""
    gates = 2 if layer.gated else 1
    busy = _busy(layer.rows)
    computing = min(
        _tiled_seconds(layer.rows, rows, gates * layer.inner, layer.hidden, constants, device, dtype)
        + _tiled_seconds(layer.rows, rows, layer.hidden, layer.inner, constants, device, dtype)
        for rows in _ROWS
    )
    bandwidth = device.peak_memory_bandwidth
    weights = (gates + 1) * layer.hidden * layer.inner * layer.bytes_each * busy
    routed = sum(layer.rows)
    carried = routed + constants.elsewhere * layer.elsewhere
    moved = carried * (6 * layer.hidden + 2 * (gates + 1) * layer.inner)
    moved += 4 * min(layer.tokens, routed) * layer.hidden
    seconds = together(computing, weights / (constants.memory * bandwidth))
    seconds += constants.activations * moved / bandwidth
    return round(seconds * SECOND + constants.each_ps * busy) + constants.floor_ps


def grouped_product_ps(
    rows: int, groups: int, columns: int, depth: int, nbytes: int, device: Device, dtype: str
) -> int | None:
    """Return how long a grouped product takes whose *groups* have equal parts of *rows*, without its launch.

    None where the device states no kernels of experts in *dtype*.
    """
    constants = device.experts.get(f"{device.expert_kernels}_{dtype}")
    if constants is None:
        return None
    each = (rows / groups,) * groups
    computing = min(
        _tiled_seconds(each, height, columns, depth, constants, device, dtype) for height in _ROWS
    )
    moving = nbytes / (constants.memory * device.peak_memory_bandwidth)
    return round(together(computing, moving) * SECOND + constants.each_ps * _busy(each) / 2)


def _tiled_seconds(
    each: Sequence[float],
    height: int,
    columns: int,
    depth: int,
    constants: ExpertConstants,
    device: Device,
    dtype: str,
) -> float:
    multiprocessors = device.multiprocessors or 1
    if sum(each) >= len(each):
        tiles = float(sum(ceil(rows / height) for rows in each))
    else:
        tiles = _busy(each)
    waves = max(tiles * ceil(columns / _COLUMNS) / multiprocessors, 1.0)
    reached = device.peaks[dtype] * constants.rate * tile_part(constants.small, height, _COLUMNS, _REFERENCE)
    return waves * 2 * height * _COLUMNS * (depth + constants.edge) * multiprocessors / reached


def _busy(rows: Sequence[float]) -> float:
    """Return how many experts have rows, where less than one stands for how often there is one."""
    return sum(min(1.0, own) for own in rows)


@lru_cache(maxsize=4096)
def rows_of_experts(
    tokens: int, experts: int, chosen: int, ranks: int, exponent: float = 0.0
) -> tuple[float, ...]:
    """Return the rows of each expert of one rank: of equal parts, or of the busiest by a power law.

    Args:
        tokens: of all ranks.
        experts: of all ranks.
        chosen: experts of a token.
        ranks: that share the experts.
        exponent: of the power law by which experts are drawn; 0: all have the same.
    """
    if not exponent:
        return (tokens * chosen / experts,) * (experts // ranks)
    random, held = Random(0), experts // ranks
    sums = [0.0] * held
    for _ in range(_DRAWS):
        drawn = _whole(drawn_rows(random, tokens, experts, chosen, exponent), tokens * chosen)
        parts = [sorted(drawn[begin : begin + held]) for begin in range(0, experts, held)]
        sums = [own + more for own, more in zip(sums, max(parts, key=sum), strict=True)]
    return tuple(own / _DRAWS for own in sums)


def _whole(drawn: Sequence[float], total: int) -> list[float]:
    """Return *drawn* rows as whole ones, of which the experts with fewest have what is left of *total*."""
    rounded = [float(round(own)) for own in drawn]
    left = total - sum(rounded)
    if left <= 0:
        return [own * total / (total - left) for own in rounded]
    level, ordered = 0.0, sorted(rounded)
    for count, own in enumerate(ordered, 1):
        left += own
        level = left / count
        if count == len(ordered) or level <= ordered[count]:
            break
    return [max(own, level) for own in rounded]


def drawn_rows(random: Random, tokens: int, experts: int, chosen: int, exponent: float) -> list[float]:
    """Return the rows of each expert, drawn from a power law; none has more than there are tokens."""
    total, power = tokens * chosen, 1 - exponent
    low, high = (1.0, max(tokens * 0.8, 1.001)) if total > experts else (0.01, 2.0)
    drawn = []
    for _ in range(experts):
        part = random.random()
        if power:
            drawn.append(((high**power - low**power) * part + low**power) ** (1 / power))
        else:
            drawn.append(low * (high / low) ** part)
    scale = total / sum(drawn)
    return [min(own * scale, tokens) for own in drawn]
