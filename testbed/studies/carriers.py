"""Carriers of buckets: which program brings which sizes to all ranks, over which cards; as rows, as a table.

What is faster is ranked by the estimate that ``auto`` goes by (`collectives.timing.cost`), for the largest
bucket of each kind; what comes out more than `WORTH_SAYING` ahead is simulated beside what is in use, each
alone on the idle network, and said only if that bears it out.  Nothing is said of what NCCL itself chooses,
for which our programs only stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import numpy as np

from collectives.catalogue.native import native_over
from collectives.catalogue.selectors import NATIVE, NVLS, OF_LIBRARY, Selector, is_one_kernel
from collectives.errors import NotExactError, NotSupportedError
from collectives.program import Algorithm
from collectives.timing import Assumptions, PlannedJob, evaluate, simulate
from collectives.timing.assumptions import Model
from collectives.timing.closed_forms import NCCL_NAMES, closed_form_of
from collectives.timing.cost import Cheapest, selector_on
from collectives.timing.rows.pattern import Pattern, patterned_rows
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from testbed.output.table import grouped, spell_size
from testbed.result import Grid, Rows, asked, found

WORTH_SAYING = 0.9
"""Of the time in use, what another program must stay below."""

MAX_RANKS = 2048
"""Up to which others are compared."""

MAX_MESSAGES = 250_000
"""Of one step of all ranks, up to which a program is compared, and its routes are followed."""


NODES = re.compile(r",?ranks_per_node=\d+")
"""The parameter that the network itself gives."""


@dataclass(frozen=True)
class Faster:
    """A program that is more than a tenth faster than the one in use, for some size.

    Attributes:
        algorithm: its name.
        seconds: that it takes, alone on the idle network.
        seconds_now: what the one in use takes there.
    """

    algorithm: str
    seconds: float
    seconds_now: float


@dataclass(frozen=True)
class Carrier:
    """What carries buckets of some sizes.

    Attributes:
        network: on which.
        ranks: world size.
        collective: by which they travel.
        smallest_bytes: of these buckets.
        largest_bytes: of these buckets.
        algorithm: the program, with its parameters.
        channels: copies of it, each with its share of a bucket.
        cards: network cards of the first node over which messages leave it; None where the network has no
            nodes with cards.
        cards_of: cards that the node has.
        faster: what is more than a tenth faster for the largest bucket; None: nothing is known.
        vendor: what the vendor's library would run by its own model, where buckets are timed by that.
    """

    network: str
    ranks: int
    collective: str
    smallest_bytes: int
    largest_bytes: int
    algorithm: str
    channels: int = 1
    cards: int | None = None
    cards_of: int | None = None
    faster: Faster | None = None
    vendor: str | None = None


def carriers_of(
    network: str, topology: Topology, asked: str, assumed: Assumptions, sizes: Iterable[tuple[str, int]]
) -> list[Carrier]:
    """Return what carries buckets on *topology*, by collective, from the smallest to the largest.

    Args:
        network: how it is called.
        topology: the network.
        asked: the algorithm of all-reduce that was asked for.
        assumed: by which steps are expected.
        sizes: of the buckets, each with the collective by which it travels.
    """
    selector = _selector(topology, asked, assumed)
    if selector is None:
        chosen: dict[tuple[str, int], Algorithm | None] = dict.fromkeys(sizes)
    else:
        chosen = {one: selector.select(*one) for one in sizes}
    found = []
    for (collective, _), own in groupby(sorted(chosen), key=lambda one: (one[0], str(chosen[one] or NATIVE))):
        alike = [nbytes for _, nbytes in own]
        algorithm = chosen[collective, alike[-1]]
        name = NATIVE if algorithm is None else shown_name(algorithm)
        carrier = Carrier(network, topology.num_ranks, collective, alike[0], alike[-1], name)
        if algorithm is not None:
            carrier = _with_cards(carrier, algorithm, topology)
            if asked not in OF_LIBRARY:
                overhead = assumed.software.rank_overhead()
                faster = faster_than(algorithm, collective, carrier.largest_bytes, topology, overhead)
                carrier = replace(carrier, faster=faster)
        if closed_form_of(asked, assumed.model) is not None:
            carrier = replace(carrier, vendor=_of_vendor(carrier, topology, asked, assumed.model))
        found.append(carrier)
    return found


def _selector(topology: Topology, asked: str, assumed: Assumptions) -> Selector | None:
    """Return what chooses the programs; None where it is none, or not known which the vendor runs."""
    if asked == NVLS:
        return None
    if asked != NATIVE:
        return selector_on(topology, asked, None, assumed.software.rank_overhead())
    try:
        return native_over(assumed.software.transport, topology.num_ranks)
    except NotSupportedError:
        return None


def _with_cards(carrier: Carrier, algorithm: Algorithm, topology: Topology) -> Carrier:
    """Return *carrier* with its channels, and the cards by which its messages leave the first node."""
    channels = algorithm.parameters.get("channels", 1)
    carrier = replace(carrier, channels=channels if isinstance(channels, int) else 1)
    cards = next((cut.links_out[0] for cut in topology.routing.cuts() if cut.name == "node"), None)
    if cards is None or topology.num_ranks <= topology.ranks_per_node:
        return carrier
    used: set[int] = set()
    last: Pattern | None = None
    try:
        for _, pattern in patterned_rows(algorithm, topology.num_ranks, MAX_MESSAGES):
            if pattern is last:
                continue
            last = pattern
            leaving = np.flatnonzero(
                (pattern.source < topology.ranks_per_node) & (pattern.destination >= topology.ranks_per_node)
            )
            if leaving.size:
                ends = pattern.source[leaving], pattern.destination[leaving]
                routes = topology.routes(*ends, pattern.channel[leaving])
                used.update(np.intersect1d(routes, cards[cards >= 0]).tolist())
                if len(used) == np.count_nonzero(cards >= 0):
                    break
    except NotExactError:
        return carrier
    return replace(carrier, cards=len(used), cards_of=int(np.count_nonzero(cards >= 0)))


def faster_than(
    algorithm: Algorithm,
    collective: str,
    nbytes: int,
    topology: Topology,
    rank_overhead: RankOverhead,
    hosts: Sequence[int] | None = None,
) -> Faster | None:
    """Return what carries *nbytes* bytes more than a tenth faster than *algorithm*; None: nothing is known.

    Nothing is said of MSCCL XML, whose thread blocks and protocol are not reckoned here.

    Args:
        algorithm: the program in use.
        collective: that it carries out.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: the network.
        rank_overhead: what ranks add to the time of either.
        hosts: the place of each rank of the group; by default all of the network.
    """
    places = tuple(range(topology.num_ranks) if hosts is None else hosts)
    if len(places) > MAX_RANKS or is_one_kernel(algorithm):
        return None
    try:
        cheapest = selector_on(topology, "auto", places, rank_overhead)
        assert isinstance(cheapest, Cheapest), "auto without a table goes by cost"
        best = cheapest.select(collective, nbytes)
        if str(best) == str(algorithm) or not cheapest.is_less(WORTH_SAYING, algorithm, collective, nbytes):
            return None
        now, then = (
            _seconds_alone(own, nbytes, topology, rank_overhead, places) for own in (algorithm, best)
        )
    except (NotExactError, NotSupportedError):
        return None
    if then >= WORTH_SAYING * now:
        return None
    return Faster(shown_name(best), then, now)


def shown_name(algorithm: Algorithm) -> str:
    """Return how *algorithm* is called in options, which need not say how many ranks share a node."""
    return NODES.sub("", str(algorithm)).rstrip(":,")


def _seconds_alone(
    algorithm: Algorithm, nbytes: int, topology: Topology, rank_overhead: RankOverhead, hosts: tuple[int, ...]
) -> float:
    """Return what *algorithm* takes by itself.

    Raises:
        NotExactError: a step has more messages than are simulated to compare.
    """
    next(patterned_rows(algorithm, len(hosts), MAX_MESSAGES), None)
    scenario = Scenario.of(topology, ())
    overhead = scenario.rank_overhead(rank_overhead, hosts)
    planned = PlannedJob(algorithm, nbytes, 1, hosts, overhead, start_ps=0, scenario=scenario)
    return evaluate(planned).seconds


def _of_vendor(carrier: Carrier, topology: Topology, asked: str, model: Model) -> str:
    """Return the vendor's names of algorithm and protocol for the largest bucket of *carrier*."""
    by_name = model == "nccl" and carrier.collective == "all_reduce" and asked in NCCL_NAMES
    if model == "library":
        model = "nccl"
    run = simulate(
        asked if by_name else "auto",
        nbytes=carrier.largest_bytes,
        topology=topology,
        collective=carrier.collective,
        model=model,
    )
    return run.algorithm


COLUMNS = (
    *asked("network", "ranks", "collective", "smallest_bytes", "largest_bytes"),
    *found("algorithm", "channels", "cards", "cards_of", "faster", "vendor"),
)

CHANNELS = re.compile(r",?channels=\d+")
"""The parameter that has a column of its own."""

MOST_RANKS = 4
"""World sizes that are listed one by one; of so many, the first and the last."""


def carrier_rows(carriers: Sequence[Carrier]) -> Rows:
    """Return a row for each of *carriers*."""
    return Rows(COLUMNS, [asdict(one) for one in carriers])


def carrier_table(carriers: Sequence[Carrier]) -> Grid | None:
    """Return what carries the buckets, world sizes that are alike in one line; None where nothing is sent."""
    lines = grouped(carriers, lambda one: (one.network, one.collective, _sizes(one), *_cells(one)))
    if not lines:
        return None
    several = len({one.collective for one in carriers}) > 1
    columns = ["network", "ranks", *(["collective"] if several else []), "buckets", "algorithm"]
    vendors = any(one.vendor for one in carriers)
    columns += ["NCCL's own"] if vendors else []
    rows, shown = [], ""
    for (network, collective, sizes, algorithm, vendor, *figures), own in lines.items():
        ranks = [one.ranks for one in own]
        spelt = ", ".join(map(str, ranks)) if len(ranks) < MOST_RANKS else f"{ranks[0]} to {ranks[-1]}"
        lead = [network if network != shown else "", spelt, *([collective] if several else []), sizes]
        rows.append([*lead, algorithm, *([vendor] if vendors else []), *figures])
        shown = network
    return Grid(
        [*columns, "channels", "cards"], rows, text_columns=len(columns), title="What carries the buckets"
    )


def faster_lines(carriers: Sequence[Carrier]) -> Iterator[str]:
    """Yield what would be faster than what is in use, a line for the world sizes of which that is said."""
    alike: dict[tuple[str, str, str, str], list[Carrier]] = {}
    for one in carriers:
        if one.faster is not None:
            key = one.network, one.collective, one.algorithm, one.faster.algorithm
            alike.setdefault(key, []).append(one)
    for (network, collective, algorithm, faster), own in alike.items():
        gains = sorted(one.faster.seconds_now / one.faster.seconds for one in own if one.faster is not None)
        times = " to ".join(dict.fromkeys(f"{gain:.2g}" for gain in (gains[0], gains[-1])))
        largest = sorted(one.largest_bytes for one in own)
        sizes = " to ".join(dict.fromkeys(map(spell_size, (largest[0], largest[-1]))))
        ranks = ", ".join(map(str, dict.fromkeys(one.ranks for one in own)))
        yield (
            f"Faster on {network}, {ranks} ranks: {faster}, {times} times as fast as {algorithm} for "
            f"{collective} of {sizes} (--algorithm auto takes it)"
        )


def _sizes(carrier: Carrier) -> str:
    least, most = spell_size(carrier.smallest_bytes), spell_size(carrier.largest_bytes)
    if least == most:
        return least
    number, unit = least.split()
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


def _cells(carrier: Carrier) -> tuple[str, str, str, str]:
    """Return the program, what the vendor would run, channels, and cards of a node."""
    name = CHANNELS.sub("", carrier.algorithm).rstrip(":,")
    cards = "–" if carrier.cards is None else f"{carrier.cards} of {carrier.cards_of}"
    return name, carrier.vendor or "–", str(carrier.channels), cards
