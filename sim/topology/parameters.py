"""Parameters of networks, each of a sort that constructors and network files know.

A kind of network is a function, and its parameters are the fields of its files: `sim.topology.files.schema`
reads off the annotation what a file may say.  Beside a `Bandwidth` a file has an efficiency, with
``efficiency`` in place of ``bandwidth`` in the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, TypeAlias

from sim.units import Quantity

Bandwidth: TypeAlias = Annotated[Quantity, "bandwidth"]
"""Such as ``"100Gbps"``, or bytes/s."""
Latency: TypeAlias = Annotated[Quantity, "latency"]
"""Such as ``"2us"``, or seconds."""
NumBytes: TypeAlias = Annotated[Quantity, "size"]
"""Such as ``"16MiB"``, or bytes."""
Count: TypeAlias = Annotated[int, "count"]
"""At least 1."""
EvenCount: TypeAlias = Annotated[int, "even count"]
"""At least 2."""
NumRanks: TypeAlias = Annotated[int, "number of ranks"]
"""A file may leave it open: its network then has as many as are asked for."""
Computed: TypeAlias = Annotated[int, "computed"]
"""What follows from the number of ranks, so that no file says it."""
Seed: TypeAlias = Annotated[int, "seed"]
Ratio: TypeAlias = Annotated[int | float | Fraction, "ratio"]
"""Above 0."""
Speedup: TypeAlias = Annotated[float, "speedup"]
"""How many times as fast, at least 1."""
Shape: TypeAlias = Annotated[Sequence[int], "shape"]
"""Sizes of the dimensions of a grid."""
