"""The tables ``[[measured]]`` of a network file: what collectives take, see `sim.measured`.

Times and bandwidths have units (``Simple = {latency = "60us", bandwidth = "250GB/s"}``).  `testbed calibrate`
writes these tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from sim.files.fields import Bandwidth, Count, Fields, Time, Words
from sim.measured import PROTOCOLS, Line, MeasuredCurve

NumBytes: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
Factor: TypeAlias = Annotated[float, Field(gt=0, lt=1e6)]
Spread: TypeAlias = Annotated[float, Field(ge=0, lt=1e6)]


class LineTable(Fields):
    """A latency, and the bandwidth beyond it."""

    latency: Time
    bandwidth: Bandwidth


class MeasuredTable(Fields):
    """See `sim.measured` for what the fields mean."""

    collective: Words
    num_nodes: Count
    ranks_per_node: Count
    line_ll: LineTable | None = Field(default=None, alias="LL")
    line_ll128: LineTable | None = Field(default=None, alias="LL128")
    line_simple: LineTable = Field(alias="Simple")
    sizes: list[NumBytes] = Field(min_length=1)
    factors: list[Factor] = Field(default=[])
    systems: list[Words] = Field(default=[])
    spread: Spread = 0.0
    spread_large: Spread = 0.0
    source: Words = ""
    carried: Words = ""

    def curve(self) -> MeasuredCurve:
        """Return what the table says.

        Raises:
            TopologyError: fields that contradict each other.
        """
        lines: list[Line] = []
        said: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if not name.startswith("line_"):
                said[name] = tuple(value) if isinstance(value, list) else value
            elif value is not None:
                lines.append(Line(value.latency, value.bandwidth))
        return MeasuredCurve(lines=tuple(lines), **said)


def measured_toml(curves: Iterable[MeasuredCurve]) -> str:
    """Return the tables ``[[measured]]`` that read back as *curves*."""
    return "\n".join(_table(curve) for curve in curves)


def _table(curve: MeasuredCurve) -> str:
    names = PROTOCOLS[len(PROTOCOLS) - len(curve.lines) :]
    lines = [
        "[[measured]]",
        f'collective = "{curve.collective}"',
        f"num_nodes = {curve.num_nodes}",
        f"ranks_per_node = {curve.ranks_per_node}",
        *(
            f'{name} = {{ latency = "{line.latency_ps / 1e6:.10g}us", bandwidth = {line.bandwidth} }}'
            for name, line in zip(names, curve.lines, strict=True)
        ),
        f"spread = {curve.spread}",
        f"spread_large = {curve.spread_large}",
        *_array("sizes", curve.sizes),
        *(_array("factors", curve.factors) if curve.factors else ()),
    ]
    if curve.systems:
        lines += _array("systems", [f'"{name}"' for name in curve.systems])
    if curve.carried:
        lines.append(f'carried = "{curve.carried}"')
    if curve.source:
        lines.append(f'source = """{curve.source}"""')
    return "\n".join(lines) + "\n"


def _array(name: str, values: Iterable[object]) -> list[str]:
    """Return the lines of an array, none of them long."""
    return wrap(f"{name} = [{', '.join(map(str, values))}]", 118, subsequent_indent="    ")
