"""Networks that are any graph: the tables ``[[node]]``, ``[[link]]``, ``[class.NAME]`` and ``[[route]]``.

    [class.nvlink]
    bandwidth = "450GB/s"
    latency = "300ns"
    efficiency = 0.79
    sharing = { one_way = [1.0, 0.98], both_ways = [0.96] }

    [[node]]
    name = "gpu[0-7]"       # a rank each, in this order
    [[node]]
    name = "nvswitch"
    kind = "switch"

    [[link]]
    from = "gpu[0-7]"       # several names against one: each with it
    to = "nvswitch"
    class = "nvlink"        # what stands in the link itself comes first
    duplex = true           # false: this direction alone

A range ``[0-7]`` in a name stands for that many names; with two, the last runs fastest.  Where both ends
of a link have several names, ``pairs`` says whether it means ``"each"`` with its counterpart or ``"all"``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from sim.files.fields import (
    Bandwidth,
    Efficiency,
    FieldError,
    Fields,
    Parts,
    SharingTable,
    Time,
    nearest,
    parts,
)
from sim.units import effective

MAX_NODES = 1 << 21
"""The most ranks and switches."""

_RANGE = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")


def _check_names(names: str) -> str:
    if not 0 < len(names) <= 200 or re.search(r"[\s\[\]]", _RANGE.sub("", names)):
        raise ValueError(f'{names[:200]!r} is no name; expected one such as "gpu0", or "gpu[0-7]" for eight')
    return names


NamedLink: TypeAlias = tuple[str, str, int, int, Parts]
"""A directed link: the names of its ends, bytes per second, picoseconds, and what flows get of it."""

Names: TypeAlias = Annotated[str, AfterValidator(_check_names)]
"""A name, in which ``[0-7]`` stands for eight numbers."""


class LinkClassTable(Fields):
    """What links have in common."""

    bandwidth: Bandwidth | None = None
    latency: Time | None = None
    efficiency: Efficiency | None = None
    sharing: SharingTable | None = None


class NodeTable(Fields):
    """A rank or a switch, or several."""

    name: Names
    kind: Literal["rank", "switch"] = "rank"


class LinkTable(LinkClassTable):
    """A link, or several that are alike."""

    tail: Names = Field(alias="from")
    head: Names = Field(alias="to")
    link_class: str | None = Field(default=None, alias="class")
    duplex: bool = True
    pairs: Literal["each", "all"] | None = None


class RouteTable(Fields):
    """The way from one rank to another, where it is not to be the shortest."""

    tail: str = Field(alias="from")
    head: str = Field(alias="to")
    via: list[str] = Field(default=[])


def count_names(names: str) -> int:
    """Return for how many names *names* stands; a range that runs backwards is empty."""
    return math.prod(max(0, int(last) - int(first) + 1) for first, last in _RANGE.findall(names))


def expand(names: str) -> list[str]:
    """Return the names that *names* stands for; numbers are as wide as a first one with leading zeros."""
    ranges = [_numbers(first, last) for first, last in _RANGE.findall(names)]
    pattern = "{}".join(part.replace("{", "{{").replace("}", "}}") for part in _RANGE.split(names)[::3])
    return [pattern.format(*numbers) for numbers in itertools.product(*ranges)]


def _numbers(first: str, last: str) -> list[str]:
    width = len(first) if first.startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]


def count_ranks(nodes: Sequence[NodeTable]) -> int:
    """Return the number of ranks, without making a list of them."""
    return sum(count_names(node.name) for node in nodes if node.kind == "rank")


def count_links(links: Sequence[LinkTable]) -> int:
    """Return the number of directed links, without making a list of them."""
    return sum(_count(link) * (2 if link.duplex else 1) for link in links)


def _count(link: LinkTable) -> int:
    tails, heads = count_names(link.tail), count_names(link.head)
    return tails * heads if link.pairs == "all" else max(tails, heads)


@dataclass(frozen=True)
class Vertices:
    """The names of a graph's ranks and switches, in order."""

    ranks: list[str]
    switches: list[str]

    @classmethod
    def of(cls, nodes: Sequence[NodeTable]) -> Vertices:
        """Return the names of all nodes.

        Raises:
            FieldError: too many nodes, a range is empty, a name stands there twice, or there is no rank.
        """
        vertices = cls([], [])
        seen: set[str] = set()
        for number, node in enumerate(nodes):
            place = ("node", number, "name")
            total = len(seen) + count_names(node.name)
            if total > MAX_NODES:
                raise FieldError(
                    place, f"with {node.name!r} there are {total} nodes; expected at most {MAX_NODES}"
                )

            names = expand(node.name)
            if not names:
                raise FieldError(
                    place, f"the range in {node.name!r} is empty; the smaller number comes first"
                )
            if twice := next((name for name in names if name in seen), None):
                raise FieldError(place, f"there are two nodes {twice!r}; each needs a name of its own")
            seen.update(names)
            (vertices.ranks if node.kind == "rank" else vertices.switches).extend(names)

        if not vertices.ranks:
            raise FieldError(("node",), 'a network needs a node of kind "rank"; all are switches')
        return vertices


def named_links(
    links: Sequence[LinkTable], classes: Mapping[str, LinkClassTable], known: Sequence[str]
) -> Iterator[NamedLink]:
    """Yield each directed link, in the order of the file; of a duplex link, first that way, then back.

    Raises:
        FieldError: an unknown node or class, a link without bandwidth or latency, a link to itself, or
            ends whose names cannot be paired.
    """
    names = frozenset(known)
    for number, link in enumerate(links):
        place = ("link", number)
        properties = _properties(link, classes, place)
        for tail, head in _pairs(link, place):
            for end, name in (("from", tail), ("to", head)):
                if name not in names:
                    raise FieldError((*place, end), f"unknown node {name!r}{nearest(name, known)}")
            if tail == head:
                raise FieldError((*place, "to"), f"a link from {tail!r} to itself")
            yield tail, head, *properties
            if link.duplex:
                yield head, tail, *properties


def _properties(
    link: LinkTable, classes: Mapping[str, LinkClassTable], place: tuple[str | int, ...]
) -> tuple[int, int, Parts]:
    """Return bandwidth, latency and sharing: of the link itself, or else of its class."""
    if link.link_class is not None and link.link_class not in classes:
        raise FieldError(
            (*place, "class"),
            f"unknown class {link.link_class!r}{nearest(link.link_class, classes)}; "
            f"expected one of the tables [class.NAME]: {', '.join(classes) or 'there are none'}",
        )
    common = LinkClassTable() if link.link_class is None else classes[link.link_class]
    bandwidth = common.bandwidth if link.bandwidth is None else link.bandwidth
    latency = common.latency if link.latency is None else link.latency
    efficiency = common.efficiency if link.efficiency is None else link.efficiency
    sharing = parts(common.sharing if link.sharing is None else link.sharing)
    if bandwidth is None or latency is None:
        missing = "bandwidth" if bandwidth is None else "latency"
        raise FieldError((*place, missing), "this field is missing; give it here or in the link's class")
    return effective(bandwidth, 1.0 if efficiency is None else efficiency), latency, sharing


def _pairs(link: LinkTable, place: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    tails, heads = expand(link.tail), expand(link.head)
    for end, names, text in (("from", tails, link.tail), ("to", heads, link.head)):
        if not names:
            raise FieldError((*place, end), f"the range in {text!r} is empty; the smaller number comes first")

    if link.pairs == "all" or len(tails) == 1 or len(heads) == 1:
        return itertools.product(tails, heads)
    if link.pairs is None:
        raise FieldError(
            (*place, "pairs"),
            'both ends have several names; say pairs = "each" (one after another) or "all" (each with every)',
        )
    if len(tails) != len(heads):
        raise FieldError(
            (*place, "pairs"), f'"each" of {len(tails)} names cannot go with one of {len(heads)}'
        )
    return zip(tails, heads, strict=True)


def static_routes(
    routes: Sequence[RouteTable], vertices: Vertices, links: Sequence[NamedLink]
) -> dict[tuple[str, str], list[str]]:
    """Return the names between the two ends of each static route.

    Raises:
        FieldError: ends that are no two ranks, a pair that has a route already, an unknown node on the
            way, or no link between two that follow each other.
    """
    ranks, joined = frozenset(vertices.ranks), {(tail, head) for tail, head, *_ in links}
    known = [*vertices.ranks, *vertices.switches]
    found: dict[tuple[str, str], list[str]] = {}
    for number, route in enumerate(routes):
        place = ("route", number)

        for end, name in (("from", route.tail), ("to", route.head)):
            if name not in ranks:
                raise FieldError((*place, end), f"there is no rank {name!r}{nearest(name, vertices.ranks)}")
        if route.tail == route.head or (route.tail, route.head) in found:
            what = "from a rank to itself" if route.tail == route.head else "that there is already"
            raise FieldError((*place, "to"), f"a route {what}: {route.tail!r} to {route.head!r}")

        for tail, head in itertools.pairwise((route.tail, *route.via, route.head)):
            if (tail, head) not in joined:
                unknown = next((name for name in (tail, head) if name not in known), None)
                said = f"there is no link from {tail!r} to {head!r}"
                if unknown is not None:
                    said = f"unknown node {unknown!r}{nearest(unknown, known)}"
                raise FieldError((*place, "via"), said)

        found[route.tail, route.head] = route.via
    return found
