"""Any of the figures that both back ends draw."""

from __future__ import annotations

from typing import TypeAlias

from testbed.plots.drawn_network import DrawnNetwork
from testbed.plots.figure import Drawing, Lines, Shares
from testbed.plots.timeline import Timeline

Figure: TypeAlias = Lines | Shares | Drawing | DrawnNetwork | Timeline
