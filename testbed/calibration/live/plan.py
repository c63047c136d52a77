"""Plan of a live calibration: which patterns of traffic are measured among so many ranks.

Every pattern is a collective that is a program, so that the simulator can say what it should take:

    broadcast to one       one message one way             all-to-all of two    one each way
    gather from k          k messages meet                 all-to-all of k+1    k from and to each rank
    scatter to k           k messages part                 all-gather           each to its neighbour, in turn
    broadcast to all       messages that follow another    all-reduce           the same, with reduction

each by our programs and by the vendor's own, alone, and of several groups at once where they may share more
than their own links: the card of a node, the trunk of a rack, or the memory of a host, through which none
but our programs go.  Ranks of a node, and of a rack, are taken to follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from testbed.benchmarking.payload import num_parts
from testbed.calibration.live.calibration import LinkClass

SIZES = (4, 1 << 12, 1 << 14, 1 << 16, 1 << 19, 1 << 22)
"""Bytes that patterns are measured at, as far as they pass in time; and the largest that does."""
IN_MEMORY = (1 << 20, 1 << 24)
"""Sizes that are measured besides in memory, where it matters whether buffers fit into caches."""
LARGE = 1 << 16
"""Bytes from which on it matters how links are shared."""
SLOWED = 1.25
"""How many times as long a pair takes in company if it shares more than its own links."""
MOST_COUNTS = 3
"""Of numbers of ranks, or of pairs, that grow."""

Pair = tuple[int, ...]

_CLASSES: dict[str, tuple[LinkClass, ...]] = {
    "host": ("inside_node", "memory"),
    "nodes": ("inside_node", "between_nodes"),
    "leaf_spine": ("between_nodes", "trunk"),
}

NATIVE = "native"
"""The vendor's own collective."""

ITEM_SIZE = 4
"""Bytes of an element: float32."""

_OURS = {"broadcast": "tree", "gather": "direct", "scatter": "direct", "all_to_all": "direct"}


@dataclass(frozen=True)
class Pattern:
    """Traffic: a collective of some ranks, or of several groups of ranks at once.

    Attributes:
        collective: its name.
        algorithm: `NATIVE`, or the name of a program of ours.
        nbytes: of the buffer of each group, as nccl-tests counts it.
        groups: the ranks of each; groups have no rank in common.
    """

    collective: str
    algorithm: str
    nbytes: int
    groups: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        who = " and ".join("-".join(map(str, members)) for members in self.groups)
        return f"{self.collective} {self.algorithm} of {self.nbytes} B among {who}"

    @property
    def is_native(self) -> bool:
        """Whether it is carried out by the vendor's own collectives."""
        return self.algorithm == NATIVE


@dataclass(frozen=True)
class Row:
    """What was measured of a pattern: seconds of each repetition, until the last rank was done."""

    pattern: Pattern
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the repetitions took no longer."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the range of the middle half of the repetitions, over the median."""
        ordered = sorted(self.seconds)
        quarter = len(ordered) // 4
        middle = ordered[quarter : len(ordered) - quarter]
        return (middle[-1] - middle[0]) / 2 / self.median


def pattern_of(collective: str, native: bool, nbytes: int, *groups: tuple[int, ...]) -> Pattern:
    """Return *collective* among *groups* of equally many ranks, of about *nbytes* bytes of `ITEM_SIZE`."""
    unit = ITEM_SIZE * num_parts(collective, len(groups[0]))
    algorithm = NATIVE if native else _OURS.get(collective, "ring")
    return Pattern(collective, algorithm, max(1, round(nbytes / unit)) * unit, groups)


def received_by_a_rank(pattern: Pattern) -> float:
    """Return the bytes that the busiest rank sends or receives by the best algorithm there is, at least 1."""
    ranks = len(pattern.groups[0])
    passes = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}
    return max(1.0, pattern.nbytes * passes.get(pattern.collective, (ranks - 1) / ranks))


@dataclass(frozen=True)
class Wiring:
    """Who shares what, as far as it is known or was found.

    Attributes:
        num_ranks: of the group.
        ranks_per_node: consecutive ranks that share a node.
        ranks_per_rack: consecutive ranks that share a switch; behind it there is a trunk.
        in_memory: whether messages go through memory that all ranks share.
        cache: bytes of all buffers together up to which that is faster; 0: no difference is looked for.
    """

    num_ranks: int
    ranks_per_node: int = 1
    ranks_per_rack: int | None = None
    in_memory: bool = False
    cache: int = 0

    @property
    def kind(self) -> str:
        """The kind of network that this is: a host, one switch, nodes, or racks."""
        if self.in_memory:
            return "host"
        if 1 < self.ranks_per_node < self.num_ranks:
            return "nodes"
        return "switch" if self.ranks_per_rack is None else "leaf_spine"

    @property
    def classes(self) -> tuple[LinkClass, ...]:
        """The classes of links, those at the ranks first."""
        if self.kind == "switch":
            return ("inside_node",) if self.ranks_per_node > 1 else ("between_nodes",)
        return _CLASSES[self.kind]

    @property
    def block(self) -> int | None:
        """How many consecutive ranks are near each other, if others are farther away."""
        return self.ranks_per_node if self.kind == "nodes" else self.ranks_per_rack


def sizes_up_to(largest: int, in_memory: bool = False) -> list[int]:
    """Return the sizes that are measured where *largest* bytes still pass in time."""
    sizes = (*SIZES, *IN_MEMORY) if in_memory else SIZES
    return sorted({*(size for size in sizes if size < largest), largest})


def caches(wiring: Wiring, patterns: Iterable[Pattern]) -> list[int]:
    """Return sizes that caches of a host might have: between those of buffers that were measured."""
    held = sorted({wiring.num_ranks * own.nbytes for own in patterns if own.nbytes >= LARGE})
    return [round((one * other) ** 0.5) for one, other in pairwise(held) if other > 1.5 * one]


def blocks(num_ranks: int) -> dict[int, list[Pair]]:
    """Return, by the size of racks that there might be, the largest first, pairs inside of such racks."""
    found: dict[int, list[Pair]] = {}
    for size in range(num_ranks, 1, -1):
        if num_ranks % size == 0:
            half = size // 2
            firsts = range(0, num_ranks, size)
            found[size] = [(first + own, first + own + half) for first in firsts for own in range(half)]
    return found


def exchanges(pairs: list[Pair], nbytes: int) -> list[Pattern]:
    """Return an exchange of each of *pairs* alone, then of all at once."""
    alone = [pattern_of("all_to_all", False, nbytes, pair) for pair in pairs]
    return [*alone, pattern_of("all_to_all", False, nbytes, *pairs)] if len(pairs) > 1 else alone


def rack_of(num_ranks: int, seconds: Mapping[Pattern, float]) -> int | None:
    """Return how many ranks share a switch with a trunk behind it, None where nothing speaks for one.

    Args:
        num_ranks: of the group.
        seconds: that the `exchanges` of all `blocks` took, of one size.
    """
    for size, pairs in blocks(num_ranks).items():
        alone = [taken for pattern, taken in seconds.items() if pattern.groups in [(pair,) for pair in pairs]]
        at_once = [taken for pattern, taken in seconds.items() if pattern.groups == tuple(pairs)]
        if max(at_once) <= SLOWED * max(alone):
            return None if size == num_ranks else size
    return None


def patterns_of(wiring: Wiring, largest: int) -> Iterator[Pattern]:
    """Yield what is measured on a network of this *wiring*, up to buffers of *largest* bytes."""
    sizes = sizes_up_to(largest, wiring.in_memory)
    large = [size for size in sizes if size >= LARGE] or sizes[-1:]
    num_ranks, block = wiring.num_ranks, wiring.block
    near = (0, 1)
    across = [(own, own + block) for own in range(min(block, num_ranks - block))] if block else []
    if wiring.in_memory:
        across = [(own, own + 1) for own in range(0, num_ranks - 1, 2)]
    everyone = tuple(range(num_ranks))
    for size in sizes:
        for native in (False,) if wiring.in_memory else (False, True):
            for pair in dict.fromkeys((near, *across[:1])):
                yield from _patterns(("broadcast", "all_to_all"), native, size, pair)
            yield from _patterns(("all_gather", "all_reduce", "broadcast"), native, size, everyone)
            if size in large:
                for k in _growing(num_ranks - 1):
                    yield from _patterns(("gather", "scatter", "all_to_all"), native, size, everyone[: k + 1])
                for k in _growing(len(across)):
                    yield from _patterns(("broadcast", "all_to_all"), native, size, *across[:k])


def _patterns(
    collectives: tuple[str, ...], native: bool, nbytes: int, *groups: tuple[int, ...]
) -> Iterator[Pattern]:
    """Yield the pattern of each of *collectives*, but not the vendor's all-to-all.

    Gloo posts its sends before its receives there, so of two ranks the first to come waits until the other's
    message has passed: how long it takes depends on who comes first.
    """
    for collective in collectives:
        if not (native and collective == "all_to_all"):
            yield pattern_of(collective, native, nbytes, *groups)


def _growing(most: int) -> list[int]:
    """Return a few numbers from 2 to *most*, the last included."""
    if most < 2:
        return []
    if most - 1 <= MOST_COUNTS:
        return list(range(2, most + 1))
    return sorted({2, (2 + most) // 2, most})
