"""A network as it is drawn: a ring as a circle, a torus as a grid, anything with switches in layers.

Without load, links both ways between two vertices are one line, a link one way is an arrow, and colour and
dash tell classes of links apart.  With load, the two halves of a line are the two directions: the half at a
vertex is what leaves it; colour says how full, and so does width.  Where a torus closes, its link is two
stubs at the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.topology import Topology
from sim.topology.kinds.torus import TorusRouting
from sim.topology.routing import Wiring
from sim.units import format_bandwidth, format_time
from testbed.output.figure import COLOURS
from testbed.plots.figure import NUM_DASHES, NoFigure
from testbed.plots.network_layout import Positions, drawn_wiring, first_half, levels, lines_between, places_of

if TYPE_CHECKING:
    from collectives.timing.links import Links

MAX_VERTICES = 4000
MAX_CLASSES = 12
"""Of links in the legend."""
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
        dash = number // len(COLOURS) % NUM_DASHES
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
