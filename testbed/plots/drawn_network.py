"""A network as it is drawn: a ring as a circle, a torus as a grid, switches in layers; and with characters.

Without load, links both ways between two vertices are one line, a link one way is an arrow, and colour and
dash tell classes of links apart.  With load, the two halves of a line are the two directions: the half at a
vertex is what leaves it; colour says how full, and so does width.  Where a torus closes, its link is two
stubs at the ends.

A sketch with characters is a tree of a network's parts, the grid of a torus, or who is linked to whom; parts
that repeat are drawn twice and then counted, so that of a large network stays on the screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.topology import Topology
from sim.topology.kinds.torus import TorusRouting
from sim.topology.routing import Wiring
from sim.units import format_bandwidth, format_time
from testbed.output.figure import COLOURS, DASHES
from testbed.plots.figure import NoFigure
from testbed.plots.network_layout import (
    NetworkPart,
    Positions,
    drawn_wiring,
    first_half,
    levels,
    lines_between,
    parts,
    places_of,
    spell_names,
)

if TYPE_CHECKING:
    from collectives.timing.links import Links

MAX_VERTICES = 4000
MAX_CLASSES = 12
"""Of links in the legend."""
UNUSED = 0.0005
"""Utilisation up to which a link is drawn as one that nothing crosses."""
JOINED = "a rank and its network card"


@dataclass(frozen=True)
class DrawnLink:
    """A line: *points* have shape (n, 2); *used* is how full, where that is known."""

    name: str
    points: Positions
    used: float = 0.0
    is_one_way: bool = False


@dataclass(frozen=True)
class LinkClass:
    """Lines of one look; *name* is empty where the legend has too many."""

    name: str
    links: Sequence[DrawnLink]
    colour: str
    dash: int


@dataclass(frozen=True)
class DrawnNetwork:
    """Vertices with their places, ranks first, and the lines between them.

    Attributes:
        wiring: its vertices, as people see them, and where each link goes.
        num_ranks: of the vertices, the first.
        places: where each vertex stands, shape (vertices, 2).
        is_wide: whether the picture is a circle or a grid, and not in layers.
        classes: of links, the slowest first; of load one.
        with_load: whether colour and width are how full a link is.
    """

    wiring: Wiring
    num_ranks: int
    places: Positions
    is_wide: bool
    classes: Sequence[LinkClass]
    with_load: bool

    @property
    def num_lines(self) -> int:
        """How many lines there are."""
        return sum(len(own.links) for own in self.classes)

    def idle_and_busy(self) -> tuple[list[DrawnLink], list[DrawnLink]]:
        """Return the lines of links that nothing crosses, and the others."""
        links = [link for own in self.classes for link in own.links]
        idle = [link for link in links if link.used <= UNUSED]
        return idle, [link for link in links if link.used > UNUSED]


def drawn_network(topology: Topology, load: Links | None = None) -> DrawnNetwork:
    """Return *topology* as it is drawn, with the *load* of its links.

    Raises:
        NoFigure: it has more vertices than anybody could tell apart.
    """
    wiring = drawn_wiring(topology.routing.wiring())
    if len(wiring.names) > MAX_VERTICES:
        raise NoFigure(
            f"cannot plot {topology.name}: {len(wiring.names)} ranks and switches are too many for "
            f"a picture; expected at most {MAX_VERTICES}"
        )
    places = places_of(topology, wiring)
    is_wide = isinstance(topology.routing, TorusRouting) or not (levels(wiring, topology.num_ranks) > 0).any()
    if load is None:
        classes = _classes(topology, wiring, places)
    else:
        classes = [LinkClass("", _halves(topology, wiring, places, load), COLOURS[0], 0)]
    return DrawnNetwork(wiring, topology.num_ranks, places, is_wide, classes, load is not None)


def _classes(topology: Topology, wiring: Wiring, places: Positions) -> list[LinkClass]:
    """Return the lines of each class of links."""
    kinds, kind = np.unique(
        np.stack([topology.link_bandwidth, topology.link_latency], axis=1), axis=0, return_inverse=True
    )
    ends = np.stack([wiring.tail, wiring.head], axis=1)
    ways = {tuple(pair) for pair in ends.tolist()}
    classes = []
    for number, (bandwidth, latency) in enumerate(kinds.tolist()):
        mine = ends[kind == number].tolist()
        name = f"{format_bandwidth(bandwidth)}, {format_time(latency)} ({len(mine)} links)"
        both = {(min(pair), max(pair)) for pair in mine if (pair[1], pair[0]) in ways}
        links = [
            DrawnLink(f"{wiring.names[tail]} – {wiring.names[head]}: {name}", line)
            for tail, head in sorted(both)
            for line in lines_between(topology, tail, head, places)
        ]
        links += [
            DrawnLink(
                f"{wiring.names[tail]} → {wiring.names[head]}: {name}", places[[tail, head]], is_one_way=True
            )
            for tail, head in mine
            if (head, tail) not in ways
        ]
        shown = name if number < MAX_CLASSES else ""
        dash = number // len(COLOURS) % len(DASHES)
        classes.append(LinkClass(shown, links, COLOURS[number % len(COLOURS)], dash))
    return classes


def _halves(topology: Topology, wiring: Wiring, places: Positions, load: Links) -> list[DrawnLink]:
    """Return a line for each direction between two vertices, the fullest last, so that it is on top."""
    fullest: dict[tuple[int, int], tuple[float, int]] = {}
    ends: Any = zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True)
    utilisation = load.utilisation[: topology.num_links].tolist()
    for number, (pair, used) in enumerate(zip(ends, utilisation, strict=True)):
        fullest[pair] = max((used, number), fullest.get(pair, (-1.0, 0)))
    halves = []
    for (tail, head), (used, number) in fullest.items():
        line = lines_between(topology, tail, head, places)
        is_half = len(line) == 1 and (head, tail) in fullest
        shown = first_half(line[0]) if is_half else line[0]
        halves.append(DrawnLink(topology.link_name(number), shown, used))
    return sorted(halves, key=lambda half: half.used)


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
