"""Constants of what training loses besides the time of its messages, in ``inefficiencies.toml`` beside it.

They are facts about devices and software, not about one model or network, so whatever predicts a step or a
device's kernels beside communication takes them from here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class InefficiencyTable:
    """The constants, and where each is from.

    Attributes:
        contention: how many times as long a computation takes while a collective is under way.
        multiprocessors_per_channel: that a channel of the collective takes from computation.
        late_deviation: standard deviation of a rank's computing time, relative to its mean.
        copy_accesses: how often a gradient's bytes are read or written on the way to its bucket and back.
        optimizer_accesses: how often a parameter's bytes are read or written by an optimizer.
        sources: of each, by the name of its table.
    """

    contention: Fraction
    multiprocessors_per_channel: int
    late_deviation: Fraction
    copy_accesses: int
    optimizer_accesses: int
    sources: Mapping[str, str]


@cache
def inefficiency_table() -> InefficiencyTable:
    """Return the constants that ship."""
    text = Path(__file__).with_name("inefficiencies.toml").read_text("utf-8")
    tables = tomllib.loads(text, parse_float=Fraction)
    return InefficiencyTable(
        contention=Fraction(tables["contention"]["slowdown"]),
        multiprocessors_per_channel=tables["contention"]["multiprocessors_per_channel"],
        late_deviation=Fraction(tables["late"]["deviation"]),
        copy_accesses=tables["copies"]["accesses"],
        optimizer_accesses=tables["optimizer"]["accesses"],
        sources={
            name: " ".join(table["source"].split())
            for name, table in tables.items()
            if isinstance(table, dict)
        },
    )
