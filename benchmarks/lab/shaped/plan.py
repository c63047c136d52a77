"""Plan of a shaped network: which devices stand for the links of a topology, and what forwards where.

Switches forward by destination alone, along the very routes that the simulator takes.  A topology whose
messages do not (routes that depend on the source too, or that lead through a host) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collectives.errors import NotSupportedError
from sim.errors import TopologyError
from sim.topology import Topology
from sim.topology.description import NetworkDescription
from sim.topology.fabric import loses
from sim.units import format_time

LARGEST = 16
"""The most hosts: all of them share the processors of one machine."""


@dataclass(frozen=True)
class End:
    """One end of a cable.

    Attributes:
        vertex: of the topology's wiring at which it is; hosts come first.
        device: its name there.
        link: the topology's link that leaves by it; None: none does, or it is a way that costs nothing.
        rate: bytes per second that leave by it; None: any number.
    """

    vertex: int
    device: str
    link: int | None
    rate: int | None


@dataclass(frozen=True)
class NextHop:
    """By which device of *vertex* messages for the host *destination* leave."""

    vertex: int
    destination: int
    device: str


@dataclass(frozen=True)
class Plan:
    """A network to be built; make one by `plan`.

    Attributes:
        topology: the network, its links at their full rates.
        names: of its vertices: hosts, then switches.
        cables: pairs of ends.
        hops: of every vertex and destination that messages pass.
        unbuilt: what the topology has and the built network lacks, a sentence each.
    """

    topology: Topology
    names: tuple[str, ...]
    cables: tuple[tuple[End, End], ...]
    hops: tuple[NextHop, ...]
    unbuilt: tuple[str, ...]

    @property
    def num_hosts(self) -> int:
        """Number of hosts."""
        return self.topology.num_ranks

    def ends(self) -> Iterator[End]:
        """Yield all ends of all cables."""
        for cable in self.cables:
            yield from cable

    def link_of(self, link: int | str) -> int:
        """Return the number of *link*, which is a number or a name of the topology's links.

        Raises:
            TopologyError: there is no link of that name.
        """
        if isinstance(link, int):
            return link
        names = [self.topology.link_name(number) for number in range(self.topology.num_links)]
        if link not in names:
            raise TopologyError(f"link {link!r}: {self.topology.name} has {', '.join(names)}")
        return names.index(link)

    def pairs_over(self, link: int) -> list[tuple[int, int]]:
        """Return the pairs of hosts, from and to, whose messages cross *link*."""
        hosts = range(self.num_hosts)
        pairs = [(one, other) for one in hosts for other in hosts if one != other]
        return [pair for pair in pairs if link in self.topology.route(*pair)]

    def end_of(self, link: int) -> End:
        """Return the end by which *link* leaves."""
        return next(end for end in self.ends() if end.link == link)


def wire(network: NetworkDescription, num_ranks: int | None = None) -> Topology:
    """Return the network of a file at the rates of its wires: efficiencies, sharing and fabric are left out.

    Raises:
        TopologyError: an impossible number of ranks.
    """
    fields = network.fields
    update: dict[str, object] = {}
    for name in type(fields).model_fields:
        if name.endswith("efficiency"):
            update[name] = 1.0
        elif name.endswith("sharing") or (name == "fabric" and loses(fields.fabric)):  # type: ignore[attr-defined]
            update[name] = None
    for tables in ("classes", "links"):
        held = getattr(fields, tables, None)
        if isinstance(held, dict):
            update[tables] = {name: _plain(table) for name, table in held.items()}
        elif held:
            update[tables] = [_plain(table) for table in held]
    return replace(network, fields=fields.model_copy(update=update)).topology(num_ranks)


def plan(topology: Topology) -> Plan:
    """Return how *topology* is built.

    Raises:
        NotSupportedError: it cannot be, or not so that messages take the simulator's routes.
    """
    if not 2 <= topology.num_ranks <= LARGEST:
        raise NotSupportedError(
            f"{topology.name} has {topology.num_ranks} ranks; a shaped network has 2 to {LARGEST} hosts"
        )
    wiring = topology.routing.wiring()
    joins = [(int(tail), int(head)) for tail, head in wiring.joins]
    links = [(int(tail), int(head)) for tail, head in zip(wiring.tail, wiring.head, strict=True)]
    devices, cables = _cables(topology, [*links, *joins], len(links))
    return Plan(topology, wiring.names, cables, _hops(topology, links, joins, devices), _unbuilt(topology))


def _plain(table: object) -> object:
    """Return a table of a file without its efficiency and sharing."""
    fields = getattr(type(table), "model_fields", {})
    update: dict[str, object] = {"efficiency": 1.0, "sharing": None}
    update = {name: value for name, value in update.items() if name in fields}
    return table.model_copy(update=update) if update else table  # type: ignore[attr-defined]


def _cables(
    topology: Topology, edges: list[tuple[int, int]], num_links: int
) -> tuple[list[str], tuple[tuple[End, End], ...]]:
    """Return the device by which each edge leaves, and the cables; two opposite edges share one."""
    devices = [""] * len(edges)
    cables: list[tuple[End, End]] = []
    taken: dict[int, int] = {}

    def end(vertex: int, edge: int | None) -> End:
        number = taken[vertex] = taken.get(vertex, -1) + 1
        device = f"eth{number}" if vertex < topology.num_ranks else f"v{vertex}p{number}"
        if edge is None:
            return End(vertex, device, None, None)
        devices[edge] = device
        link = edge if edge < num_links else None
        return End(vertex, device, link, None if link is None else int(topology.link_bandwidth[link]))

    waiting: dict[tuple[int, int], list[int]] = {}
    for number, (tail, head) in enumerate(edges):
        waiting.setdefault((tail, head), []).append(number)
    for number, (tail, head) in enumerate(edges):
        if number not in waiting[tail, head]:
            continue
        waiting[tail, head].remove(number)
        back = waiting.get((head, tail))
        cables.append((end(tail, number), end(head, back.pop(0) if back else None)))
    return devices, tuple(cables)


def _hops(
    topology: Topology, links: list[tuple[int, int]], joins: list[tuple[int, int]], devices: list[str]
) -> tuple[NextHop, ...]:
    """Return by which device each vertex forwards for each destination.

    Raises:
        NotSupportedError: it depends on the source, or a route leads through a host.
    """
    join_of = {ends: len(links) + number for number, ends in enumerate(joins)}
    hops: dict[tuple[int, int], int] = {}
    hosts = range(topology.num_ranks)
    for source, destination in ((s, d) for s in hosts for d in hosts if s != d):
        here, path = source, []
        for link in topology.route(source, destination):
            tail, head = links[link]
            path += [(here, join_of[here, tail])] if tail != here else []
            path.append((tail, link))
            here = head
        path += [(here, join_of[here, destination])] if here != destination else []

        for vertex, edge in path:
            if vertex < topology.num_ranks and vertex != source:
                raise NotSupportedError(
                    f"{topology.name}: messages from rank {source} to rank {destination} pass through rank "
                    f"{vertex}; a shaped network has hosts at its edge, and switches between them"
                )
            if hops.setdefault((vertex, destination), edge) != edge:
                raise NotSupportedError(
                    f"{topology.name}: the way to rank {destination} depends on the source; switches of a "
                    "shaped network forward by destination alone: take routing static or shortest, not ecmp"
                )
    return tuple(NextHop(vertex, to, devices[edge]) for (vertex, to), edge in sorted(hops.items()))


def _unbuilt(topology: Topology) -> tuple[str, ...]:
    """Return what cannot be built of *topology*."""
    longest = int(topology.link_latency.max(initial=0))
    if not longest:
        return ()
    return (
        f"latencies of the file (up to {format_time(longest)} a link) are not built, as that takes netem, "
        "which few kernels have; predictions take the latency that the calibration measured",
    )
