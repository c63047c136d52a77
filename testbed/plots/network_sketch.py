"""A network drawn with characters: a tree of its parts, the grid of a torus, or who is linked to whom.

Parts that repeat are drawn twice and then counted, so the sketch of a large network stays on the screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sim.topology import Topology
from sim.topology.kinds.torus import TorusRouting
from sim.topology.routing import Wiring
from sim.units import format_bandwidth, format_time
from testbed.plots.network_layout import NetworkPart, drawn_wiring, levels, parts, spell_names

MAX_ALIKE = 3
"""So many parts beside each other are drawn; of more, the first two and the last."""
MAX_GRID = 8
MAX_NEIGHBOURS = 24


def sketch(topology: Topology) -> str:
    """Return the drawing of *topology*, of about 60 lines at most."""
    if isinstance(topology.routing, TorusRouting):
        return "\n".join(_grid(topology.routing.shape))
    wiring = drawn_wiring(topology.routing.wiring())
    if len(wiring.names) == topology.num_ranks:
        return "\n".join(_neighbours(wiring))
    drawing = _Tree(topology, wiring)
    lines = [line for part in parts(wiring, topology.num_ranks) for line in drawing.lines(part)]
    return "\n".join(lines)


def _grid(shape: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a torus: its last two dimensions as a grid, of others the first layer."""
    *layers, rows, columns = (1, 1, *(size for size in shape if size > 1))
    shown_rows, shown_columns = min(rows, MAX_GRID), min(columns, MAX_GRID)
    width = len(str(rows * columns - 1))
    closing = " ─ ┄" if columns > 2 else ""
    for row in range(shown_rows):
        line = " ─ ".join(f"{row * columns + column:>{width}}" for column in range(shown_columns))
        gap = " ─ …" if shown_columns < columns else ""
        yield ("┄ ─ " if closing else "") + line + gap + closing
        if row < rows - 1:
            bars = "   ".join(f"{'│':>{width}}" for _ in range(shown_columns))
            yield (" " * (4 if closing else 0) + bars).rstrip()
    if shown_rows < rows:
        yield f"{' ' * (4 if closing else 0)}{'⋮':>{width}}   ({rows} rows)"
    closed = [name for name, size in (("Rows", columns), ("columns", rows)) if size > 2]
    if closed:
        yield f"{' and '.join(closed).capitalize()} close: ┄ goes on at the other end."
    if np.prod(layers) > 1:
        yield f"The first of {int(np.prod(layers))} layers ({' x '.join(map(str, shape))})."


def _neighbours(wiring: Wiring) -> Iterator[str]:
    """Yield a line for each rank of a network without switches: to which others it has links."""
    shown = min(len(wiring.names), MAX_NEIGHBOURS)
    width = max(map(len, wiring.names[:shown]))
    for rank in range(shown):
        heads = sorted(set(wiring.head[wiring.tail == rank].tolist()))
        yield f"{wiring.names[rank]:{width}} ─ {spell_names([wiring.names[head] for head in heads])}".rstrip(
            " ─"
        )
    if shown < len(wiring.names):
        yield f"… {len(wiring.names) - shown} more"


class _Tree:
    """Draws parts; knows which links leave a vertex."""

    def __init__(self, topology: Topology, wiring: Wiring) -> None:
        self.topology = topology
        self.wiring = wiring
        self._level = levels(self.wiring, self.topology.num_ranks)
        self._by_tail = np.argsort(self.wiring.tail, kind="stable")
        self._start = np.searchsorted(self.wiring.tail[self._by_tail], np.arange(len(self.wiring.names) + 1))

    def lines(self, part: NetworkPart) -> Iterator[str]:
        """Yield the part's own line, then its parts, indented."""
        yield self._name(part)
        if part.level == 0:
            return
        rows: list[list[str]] = []
        if all(below.level == 0 for below in part.parts):
            ranks = [below.top[0] for below in part.parts]
            rows.append([spell_names([self.wiring.names[rank] for rank in ranks]) + self._links(ranks)])
        else:
            shown = part.parts if len(part.parts) <= MAX_ALIKE else [*part.parts[:2], part.parts[-1]]
            rows = [list(self.lines(below)) for below in shown]
            if left_out := len(part.parts) - len(shown):
                rows.insert(2, [f"… {left_out} more"])
        for number, row in enumerate(rows):
            last = number == len(rows) - 1
            yield ("└─ " if last else "├─ ") + row[0]
            yield from (("   " if last else "│  ") + line for line in row[1:])

    def _name(self, part: NetworkPart) -> str:
        return spell_names([self.wiring.names[vertex] for vertex in part.top]) + self._links(part.top)

    def _links(self, vertices: Sequence[int]) -> str:
        """Return the links from *vertices* upwards, as ``  (up: 4 x 25 GB/s, 2 us)``."""
        links = np.concatenate(
            [self._by_tail[self._start[vertex] : self._start[vertex + 1]] for vertex in vertices]
        )
        links = links[self._level[self.wiring.head[links]] > self._level[self.wiring.tail[links]]]
        kinds = Counter(
            zip(
                self.topology.link_bandwidth[links].tolist(),
                self.topology.link_latency[links].tolist(),
                strict=True,
            )
        )
        said = [
            f"{count} x {format_bandwidth(bandwidth)}, {format_time(latency)}"
            for (bandwidth, latency), count in kinds.most_common(3)
        ]
        return f"  (up: {'; '.join(said)})" if said else ""
