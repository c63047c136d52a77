"""Fields that network files of all kinds have."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.files.fields import Count, Fields, Words
from sim.files.hardware_table import HardwareTable
from sim.files.measured_table import MeasuredTable


class Common(Fields):
    """What networks of all kinds have in common."""

    schema_version: Literal[1] = Field(alias="schema")
    description: Words = ""
    source: Words = ""
    in_network_reduction: bool = False
    hardware: HardwareTable | None = None
    measured: list[MeasuredTable] = Field(default=[])
    calibration: dict[str, Any] = Field(default={}, description="what testbed calibrate found")


class AnySize(Common):
    """A network of any number of ranks, unless the file says how many."""

    num_ranks: Count | None = None

    @property
    def size(self) -> int | None:
        """Number of ranks, or None for any number."""
        return self.num_ranks
