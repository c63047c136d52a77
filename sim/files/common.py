"""Fields that network files of all kinds have."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.files.fields import Count, Fields, Words, parts, quantity
from sim.files.hardware_table import HardwareTable
from sim.files.measured_table import MeasuredTable
from sim.units import effective


class Common(Fields):
    """What networks of all kinds have in common."""

    schema_version: Literal[1] = Field(alias="schema")
    description: Words = ""
    source: Words = ""
    in_network_reduction: bool = False
    hardware: HardwareTable | None = None
    measured: list[MeasuredTable] = Field(default=[])
    calibration: dict[str, Any] = Field(default={}, description="what testbed calibrate found")

    def arguments(self, num_ranks: int) -> dict[str, Any]:
        """Return the arguments that make the network for *num_ranks* ranks.

        They are the fields that its kind has of its own, by the same names: of a bandwidth the part that its
        efficiency leaves, a latency with its unit.
        """
        own = [name for name in type(self).model_fields if name not in {*Common.model_fields, "kind"}]
        said = {name: self._argument(name) for name in own if not name.endswith("efficiency")}
        return said | ({"num_ranks": num_ranks} if "num_ranks" in own else {})

    def _argument(self, name: str) -> Any:
        value = getattr(self, name)
        if name.endswith("bandwidth"):
            return effective(value, getattr(self, name.replace("bandwidth", "efficiency")))
        if name.endswith("latency"):
            return None if value is None else quantity(value)
        return parts(value) if name.endswith("sharing") else value


class AnySize(Common):
    """A network of any number of ranks, unless the file says how many."""

    num_ranks: Count | None = None

    @property
    def size(self) -> int | None:
        """Number of ranks, or None for any number."""
        return self.num_ranks
