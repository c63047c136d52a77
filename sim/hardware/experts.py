"""Constants of layers of routed experts: what the kernels of one library take on a device, in one type.

Routing, permutation, both grouped products, activation and the sum of what experts return are a few kernels;
what they take together, and what the grouped products reach by themselves:
`collectives.virtual.computation.cuda.experts`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExpertConstants:
    """How one library's kernels of experts run.

    Attributes:
        rate: part of the peak of their type that tiles of 64 × 128 reach in grouped products.
        small: by how much smaller tiles do less, as `sim.hardware.products.ProductConstants.small`.
        edge: steps of depth that a tile's beginning and end take.
        memory: part of the memory's bandwidth at which weights are read.
        activations: how often rows of tokens cross the memory at its full bandwidth, beside once each for
            inputs, halves and outputs.
        each_ps: for each expert that has rows, in picoseconds.
        floor_ps: of the layer, in picoseconds.
        elsewhere: part of what a row crosses the memory for that one routed to another rank's expert does.
    """

    rate: float
    small: float = 0.0
    edge: float = 0.0
    memory: float = 1.0
    activations: float = 1.0
    each_ps: int = 0
    floor_ps: int = 0
    elsewhere: float = 0.0
