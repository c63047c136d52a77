"""Any graph: nodes and links by name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import numpy as np

from sim.errors import TopologyError
from sim.topology.layout import Links, NetworkLayout
from sim.topology.parameters import Count, Seed
from sim.topology.routing import Cut, Ranks, Wiring, ecmp_seed, one_pair
from sim.topology.routing.paths import UNREACHABLE, ShortestPaths
from sim.topology.sharing_table import SharingArgument
from sim.units import Int64Array, parse_count


class LinkSpec(NamedTuple):
    """A directed link: the names of its ends, bytes per second, picoseconds, what flows get of it."""

    tail: str
    head: str
    bandwidth: int
    latency: int
    sharing: SharingArgument = None


def graph(
    *,
    ranks: Sequence[str],
    switches: Sequence[str] = (),
    links: Sequence[LinkSpec],
    routes: Mapping[tuple[str, str], Sequence[str]] | None = None,
    ranks_per_node: Count = 1,
    routing: Literal["shortest", "ecmp"] = "shortest",
    metric: Literal["hops", "latency"] = "hops",
    seed: Seed = 0,
    name: str = "graph",
) -> NetworkLayout:
    """Return any network.

    Args:
        ranks: names of the ranks, rank 0 first.
        switches: names of what else links end at.
        links: directed links, numbered in this order; a cable that carries both ways is two.
        routes: for pairs of ranks (source, destination), the names on the way between them; other
            pairs take a shortest path.
        ranks_per_node: consecutive ranks that make a node.
        routing: of several shortest paths, ``shortest`` takes that whose links come first, ``ecmp``
            one by hash.
        metric: what a shortest path has least of: ``hops``, or ``latency`` and then hops.
        seed: of the hash.
        name: for people.

    Raises:
        TopologyError: names that are not there or come twice, a rank that cannot reach another, a
            route over links that do not exist, impossible numbers.
    """
    if metric not in ("hops", "latency"):
        raise TopologyError(f"metric: expected 'hops' or 'latency', got {metric!r}")
    seed_or_none = ecmp_seed(routing, ("shortest", "ecmp"), seed)
    specs = [LinkSpec(*link) for link in links]
    for spec in specs:
        what = f"link {spec.tail!r} to {spec.head!r}"
        parse_count(spec.bandwidth, f"{what}, bytes per second")
        parse_count(spec.latency, f"{what}, latency in picoseconds", least=0)
    num_ranks = parse_count(len(ranks), "number of ranks")
    graph = GraphRouting.of(ranks, switches, specs, routes or {}, metric == "latency", seed_or_none)
    per_node = min(parse_count(ranks_per_node, "ranks_per_node"), num_ranks)
    each = [Links(1, spec.bandwidth, spec.latency, spec.sharing) for spec in specs]
    return NetworkLayout(name, num_ranks, per_node, each, graph)


@dataclass(frozen=True, eq=False)
class GraphRouting:
    """A message takes a shortest path; other ranks on it pass it on.

    Links are numbered as listed.  Of several shortest paths it takes that whose links come first,
    or, with a seed, one by hash of source, channel, destination and each vertex on the way (ECMP).
    Static routes override both.

    Attributes:
        num_ranks: number of ranks, the first vertices.
        names: of all vertices.
        tail: the vertex where each link begins, int64.
        head: the vertex where each link ends, int64.
        length: of each link, above 0; ones count hops.
        ecmp_seed: of the hash; None: the first path.
        static: links from rank to rank, by (source, destination).
    """

    num_ranks: int
    names: tuple[str, ...]
    tail: Int64Array = field(repr=False)
    head: Int64Array = field(repr=False)
    length: Int64Array = field(repr=False)
    ecmp_seed: int | None = None
    static: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ranks: Sequence[str],
        switches: Sequence[str],
        links: Sequence[LinkSpec],
        routes: Mapping[tuple[str, str], Sequence[str]],
        by_latency: bool,
        ecmp_seed: int | None,
    ) -> GraphRouting:
        """Return the routing of a graph by names; arguments and errors as for `Topology.graph`."""
        names = (*ranks, *switches)
        number = {name: vertex for vertex, name in enumerate(names)}
        if len(number) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise TopologyError(f"{twice!r}: two ranks or switches have this name; give each its own")

        for link in links:
            for end in (link.tail, link.head):
                if end not in number:
                    raise TopologyError(f"link {link.tail!r} to {link.head!r}: there is no {end!r}")
            if link.tail == link.head:
                raise TopologyError(f"link {link.tail!r} to {link.head!r}: a link has two different ends")

        tail = np.array([number[link.tail] for link in links], dtype=np.int64)
        head = np.array([number[link.head] for link in links], dtype=np.int64)
        length = np.ones(len(links), dtype=np.int64)
        if by_latency:
            latencies = [link.latency for link in links]
            if max(latencies, default=0) * len(names) ** 2 >= UNREACHABLE:
                raise TopologyError(f"latency: {max(latencies)} ps is too long to add up over this graph")
            length += np.array(latencies, dtype=np.int64) * len(names)  # hops decide between equals

        static = _static_routes(ranks, number, tail, head, routes)
        routing = cls(len(ranks), names, tail, head, length, ecmp_seed, static)
        unreached, unreaching = routing._paths.strangers(0, len(ranks))
        if pairs := [*((0, rank) for rank in unreached), *((rank, 0) for rank in unreaching)]:
            here, there = (names[rank] for rank in pairs[0])
            raise TopologyError(f"{here!r} cannot reach {there!r}: no links lead there")
        return routing

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.ecmp_seed is not None

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links of the static route or the shortest path."""
        if not isinstance(source, np.ndarray):
            by_hash = 0 if self.ecmp_seed is None else cast(int, channel)
            yield from self._route(source, cast(int, destination), by_hash)
            return

        destination = cast(Int64Array, destination)
        given = self._given(source, destination)
        for turn in range(max((len(route) for route in given.values()), default=0)):
            links = np.full(len(source), -1, dtype=np.int64)
            for index, route in given.items():
                links[index] = route[turn] if turn < len(route) else -1
            yield links

        found = source.copy()
        found[list(given)] = destination[list(given)]
        yield from self._paths.walk(found, destination, self.ecmp_seed, channel)

    def _given(self, source: Int64Array, destination: Int64Array) -> dict[int, tuple[int, ...]]:
        """Return the static routes among the pairs, by index."""
        if not self.static:
            return {}
        pairs = enumerate(zip(source.tolist(), destination.tolist(), strict=True))
        return {index: self.static[pair] for index, pair in pairs if pair in self.static}

    @cached_property
    def _route(self) -> Callable[[int, int, int], tuple[int, ...]]:
        """Routes of single pairs, kept, as a search takes a while."""
        return lru_cache(maxsize=2**16)(
            lambda source, destination, channel: tuple(one_pair(self, source, destination, channel))
        )

    @cached_property
    def _paths(self) -> ShortestPaths:
        return ShortestPaths.of(self.wiring(), self.length)

    def link_name(self, link: int) -> str:
        """Return for example ``gpu0 to leaf1``, or of parallel links ``gpu0 to leaf1 (2)``."""
        tail, head = self.tail[link], self.head[link]
        twins = int(np.sum((self.tail[:link] == tail) & (self.head[:link] == head)))
        return f"{self.names[tail]} to {self.names[head]}{f' ({twins + 1})' if twins else ''}"

    def wiring(self) -> Wiring:
        """Return the graph."""
        return Wiring(self.names, self.tail, self.head)

    def cuts(self) -> list[Cut]:
        """Return the cuts around each switch with the ranks on it, and around each rank.

        A rank is on the switch that its first link leads to.
        """
        vertices = np.arange(len(self.names))
        tails, first = np.unique(self.tail, return_index=True)
        beside = vertices.copy()
        beside[tails] = self.head[first]
        group = np.where(vertices < self.num_ranks, beside, vertices) - self.num_ranks
        cuts = [self._cut("switch", np.maximum(group, -1), len(vertices) - self.num_ranks)]
        return [*cuts, self._cut("rank", np.where(vertices < self.num_ranks, vertices, -1), self.num_ranks)]

    def _cut(self, name: str, group: Int64Array, num_groups: int) -> Cut:
        """Return the cut around groups of vertices; -1: in none."""
        leaving, entering = group[self.tail], group[self.head]
        crossing = leaving != entering
        out, into = (_by_group(np.where(crossing, side, -1), num_groups) for side in (leaving, entering))
        return Cut(name, group[: self.num_ranks], out, into)

    def __repr__(self) -> str:
        content = b"".join(array.tobytes() for array in (self.tail, self.head, self.length))
        digest = hashlib.sha256(content).hexdigest()[:16]
        return (
            f"GraphRouting(num_ranks={self.num_ranks}, links={digest}, ecmp_seed={self.ecmp_seed}, "
            f"static={sorted(self.static.items())})"
        )


def _by_group(group_of_link: Int64Array, num_groups: int) -> Int64Array:
    """Return the links of each group, shape (num_groups, k), padded with -1."""
    counts = np.bincount(group_of_link[group_of_link >= 0], minlength=num_groups)
    order = np.argsort(group_of_link, kind="stable")[np.sum(group_of_link < 0) :]
    table = np.full((num_groups, int(counts.max(initial=0))), -1, dtype=np.int64)
    table[np.arange(table.shape[1]) < counts[:, None]] = order
    return table


def _static_routes(
    ranks: Sequence[str],
    number: Mapping[str, int],
    tail: Int64Array,
    head: Int64Array,
    routes: Mapping[tuple[str, str], Sequence[str]],
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the links of each static route."""
    link_between: dict[tuple[int, int], int] = {}
    for link, ends in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
        link_between.setdefault(ends, link)

    found = {}
    for (source, destination), between in routes.items():
        what = f"route {source!r} to {destination!r}"
        for end in (source, destination):
            if number.get(end, len(ranks)) >= len(ranks):
                raise TopologyError(f"{what}: there is no rank {end!r}; routes lead from rank to rank")

        stops = [source, *between, destination]
        if len(set(stops)) < len(stops):
            raise TopologyError(f"{what}: comes twice by the same place; expected a path")

        links = []
        for here, there in pairwise(stops):
            ends = number.get(here, -1), number.get(there, -1)
            if ends not in link_between:
                raise TopologyError(f"{what}: there is no link {here!r} to {there!r}")
            links.append(link_between[ends])
        found[number[source], number[destination]] = tuple(links)
    return found
