"""Trees of switches: leaves, spines, and cores where there are several pods.

[Note: spray] Where every packet takes another of the equal paths (adaptive routing), a flow is divided
evenly over all of them.  Links that are equals, the uplinks of one leaf for example, then carry equal parts
of every flow that crosses any of them, so what limits one limits all: together they do to flows what one
link of their joint bandwidth does, exactly.  So a tree that sprays has one spine in each pod and one core,
which stand for all, and links of the joint bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sim.errors import TopologyError
from sim.topology.layout import Links, Spreading
from sim.topology.routing import (
    Cut,
    Ranks,
    Wiring,
    choose,
    cut_around_ranks,
    ecmp_seed,
    rank_names,
    up_or_down,
)
from sim.topology.routing.hashing import connection, spread
from sim.topology.sharing_table import SharingArgument
from sim.units import Int64Array


@dataclass(frozen=True)
class SwitchTree:
    """Every leaf is linked to the spines of its pod, every spine to cores of its own plane.

    Spine s of each pod is of plane s: it is linked to the cores of that plane, and so to spine s of the other
    pods.  A message climbs no higher than the two leaves have a switch in common.  Of the equal paths
    ``num_spines · cores_per_spine`` it takes number ``destination port % paths`` (d-mod-k: Zahavi, "Fat-tree
    routing and node ordering providing contention free traffic for MPI global collectives", JPDC 72(11),
    2012: permutations that shift all ports share no link in a full tree), or, with a seed, one by hash of the
    keys that it is walked with (ECMP).  Path x goes over spine ``x % num_spines`` and that one's core
    ``x // num_spines``.

    Links, with L leaves, P pods, S spines in a pod and C cores of each plane, from 0 on: L·S from leaf l to
    spine s, ``l·S + s``; P·S·C from spine s of pod p to core c, ``(p·S + s)·C + c``; as many from cores down;
    then L·S from spines down.  One pod has no cores.

    Attributes:
        num_leaves: number of leaves.
        ports_per_leaf: hosts that a leaf has room for; port p is on leaf ``p // ports_per_leaf``.
        num_spines: spines of a pod, and so uplinks of a leaf.
        leaves_per_pod: consecutive leaves that make a pod; the last pod may have fewer.
        cores_per_spine: cores of a plane, and so uplinks of a spine.
        ecmp_seed: of the hash; None: by destination.
        levels: what the switches are called, from the lowest level up.
        joint: whether the one spine of a pod, and the one core, stand for all: [Note: spray].
    """

    num_leaves: int
    ports_per_leaf: int
    num_spines: int
    leaves_per_pod: int
    cores_per_spine: int = 1
    ecmp_seed: int | None = None
    levels: tuple[str, str, str] = ("leaf", "spine", "core")
    joint: bool = False

    @property
    def num_pods(self) -> int:
        """Number of pods."""
        return -(-self.num_leaves // self.leaves_per_pod)

    @property
    def num_uplinks(self) -> tuple[int, int]:
        """Number of links up from leaves, and from spines."""
        over = self.num_pods * self.num_spines * self.cores_per_spine
        return self.num_leaves * self.num_spines, over if self.num_pods > 1 else 0

    @property
    def num_links(self) -> int:
        """Number of directed links."""
        return 2 * sum(self.num_uplinks)

    def walk(self, first: int, source: Ranks, destination: Ranks, *keys: Ranks) -> Iterator[Ranks]:
        """Yield the links between two ports, whose numbers begin at *first*; ECMP hashes the *keys*."""
        spines, cores = self.num_spines, self.cores_per_spine
        up, over = self.num_uplinks
        paths = spines * cores if over else spines
        path = destination % paths if self.ecmp_seed is None else spread(self.ecmp_seed, paths, *keys)
        spine, plane = path % spines, path % spines * cores + path // spines

        leaf, far_leaf = source // self.ports_per_leaf, destination // self.ports_per_leaf
        pod, far_pod = leaf // self.leaves_per_pod, far_leaf // self.leaves_per_pod
        yield choose(leaf == far_leaf, -1, first + leaf * spines + spine)
        if over:
            yield choose(pod == far_pod, -1, first + up + pod * spines * cores + plane)
            yield choose(pod == far_pod, -1, first + up + over + far_pod * spines * cores + plane)
        yield choose(leaf == far_leaf, -1, first + up + 2 * over + far_leaf * spines + spine)

    def link_name(self, link: int) -> str:
        """Return for example ``leaf 0 to spine 1`` or ``core 2 to spine 5``."""
        up, over = self.num_uplinks
        blocks = ((up, False, 1), (over, True, 1), (over, True, -1), (up, False, -1))
        for count, to_core, step in blocks:
            if link < count:
                ends = [self._switch_name(int(end)) for end in self._ends(link, to_core)]
                return " to ".join(ends[::step])
            link -= count
        raise IndexError("the tree has fewer links")

    def _ends(self, number: Ranks, to_core: bool) -> tuple[Ranks, Ranks]:
        """Return the two ends, the lower first, of uplink *number* of leaves, or of spines."""
        spines, cores = self.num_spines, self.cores_per_spine
        first_core = self.num_leaves + self.num_pods * spines
        if to_core:
            return self.num_leaves + number // cores, first_core + number % (spines * cores)
        leaf = number // spines
        return leaf, self.num_leaves + leaf // self.leaves_per_pod * spines + number % spines

    def _switch_name(self, switch: int) -> str:
        leaf, spine, core = self.levels
        if switch < self.num_leaves:
            return f"{leaf} {switch}"
        switch -= self.num_leaves
        several = self.num_pods > 1
        if switch < self.num_pods * self.num_spines:
            joint = f"pod {switch} {spine}s" if several else f"{spine}s"
            return joint if self.joint else f"{spine} {switch}"
        return f"{core}s" if self.joint else f"{core} {switch - self.num_pods * self.num_spines}"

    def wiring(self, first: int) -> tuple[list[str], Int64Array, Int64Array]:
        """Return the names of the switches, numbered from *first* on, and the two ends of each link."""
        (leaf, spine), (middle, core) = (
            [first + np.asarray(end) for end in self._ends(np.arange(count), to_core)]
            for count, to_core in zip(self.num_uplinks, (False, True), strict=True)
        )
        num_spines = self.num_pods * self.num_spines
        num_cores = self.num_spines * self.cores_per_spine if self.num_pods > 1 else 0
        names = [self._switch_name(switch) for switch in range(self.num_leaves + num_spines + num_cores)]
        return (
            names,
            np.concatenate([leaf, middle, core, spine]),
            np.concatenate([spine, core, middle, leaf]),
        )

    def cuts(self, first: int, leaf: Int64Array, name: str, together: int = 1) -> list[Cut]:
        """Return the cuts around each pod, if there are several, and around leaves.

        Args:
            first: number of the first link.
            leaf: of each rank, as far as the cuts go.
            name: what the group of a leaf is.
            together: consecutive leaves that make one group.
        """
        up, over = self.num_uplinks
        leaves = first + np.arange(up).reshape(-1, together * self.num_spines)
        cuts = [Cut(name, leaf // together, leaves, leaves + up + 2 * over)]
        if over:
            pods = first + up + np.arange(over).reshape(self.num_pods, -1)
            cuts.insert(0, Cut("pod", leaf // self.leaves_per_pod, pods, pods + over))
        return cuts


@dataclass(frozen=True)
class TreeRouting:
    """A message crosses its rank's link to the leaf, those of the tree, and the link down to its destination.

    So it crosses two links under one leaf, four inside a pod, six between pods.  Rank r is on port r of
    *tree*, which says which of its equal paths a message takes.

    Links, with R ranks: up of rank r is ``r``, down is ``R + r``; those of the tree follow.
    """

    num_ranks: int
    tree: SwitchTree

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.tree.ecmp_seed is not None

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links up, as far as the two have no switch in common, and down again."""
        yield source
        yield from self.tree.walk(
            2 * self.num_ranks, source, destination, connection(source, channel), destination
        )
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 up`` or ``leaf 0 to spine 1``."""
        if link < 2 * self.num_ranks:
            return up_or_down(link, self.num_ranks)
        return self.tree.link_name(link - 2 * self.num_ranks)

    def wiring(self) -> Wiring:
        """Return the ranks, then the switches from the leaves up."""
        ranks = np.arange(self.num_ranks)
        own_leaf = self.num_ranks + ranks // self.tree.ports_per_leaf
        names, tail, head = self.tree.wiring(self.num_ranks)
        return Wiring(
            (*rank_names(self.num_ranks), *names),
            np.concatenate([ranks, own_leaf, tail]),
            np.concatenate([own_leaf, ranks, head]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cuts around each pod, if there are several, each leaf and each rank."""
        ranks = np.arange(self.num_ranks)
        return [
            *self.tree.cuts(2 * self.num_ranks, ranks // self.tree.ports_per_leaf, self.tree.levels[0]),
            cut_around_ranks(self.num_ranks),
        ]


def switch_tree(
    routing: Spreading,
    seed: int,
    num_leaves: int,
    ports_per_leaf: int,
    num_spines: int,
    leaves_per_pod: int,
    cores_per_spine: int = 1,
    levels: tuple[str, str, str] = ("leaf", "spine", "core"),
) -> SwitchTree:
    """Return the tree of so many switches, as *routing* spreads messages over it.

    Raises:
        TopologyError: an unknown routing, or a seed that is not a whole number.
    """
    ecmp = ecmp_seed(routing, ("static", "ecmp", "spray"), seed)
    if routing == "spray":
        return SwitchTree(num_leaves, ports_per_leaf, 1, leaves_per_pod, 1, None, levels, joint=True)
    return SwitchTree(num_leaves, ports_per_leaf, num_spines, leaves_per_pod, cores_per_spine, ecmp, levels)


def uplinks(tree: SwitchTree, up: int, over: int, latency: int, sharing: SharingArgument) -> list[Links]:
    """Return the links of *tree*, in order: those of leaves up, of spines up, of cores down, of spines down.

    Args:
        tree: whose links.
        up: bandwidth of a link between a leaf and a spine.
        over: of one between a spine and a core.
        latency: of each.
        sharing: what flows get of each.
    """
    leaves, spines = tree.num_uplinks
    counts = ((leaves, up), (2 * spines, over), (leaves, up))
    return [Links(count, bandwidth, latency, sharing) for count, bandwidth in counts]


def joint(bandwidth: int, links: int, what: str) -> int:
    """Return what *links* of *bandwidth* carry together.

    Raises:
        TopologyError: more than 63 bits hold; names *what*.
    """
    if bandwidth * links >= 2**63:
        raise TopologyError(
            f"{what}: {links} links of {bandwidth} bytes/s carry together more than 2^63 bytes/s"
        )
    return bandwidth * links


def thinned(bandwidth: int, ratio: float | Fraction, what: str = "oversubscription") -> int:
    """Return *bandwidth* divided by *ratio*, rounded down.

    Raises:
        TopologyError: the ratio is not a positive number, or leaves nothing; names *what*.
    """
    try:
        rate = int(bandwidth / Fraction(str(ratio)))
    except (ValueError, ZeroDivisionError):
        rate = 0
    if not 0 < rate < 2**63:
        raise TopologyError(
            f"{what}: expected a number such as 4 that leaves some of {bandwidth} bytes/s, got {ratio!r}"
        )
    return rate
