"""Classes of equal flows and links, and the fluid problem of flows that begin together, solved for these.

Flows and links are divided into classes such that all flows of a class cross equally many links of
each class, and all links of a class are crossed by equally many flows of each class (an equitable
partition).  With sharing tables, links of a class have one table, and opposites of one class.  Max-min
fairness then gives all flows of a class one rate, and they end together, so a
problem with a million flows is as small as its number of classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sim.network.capacity import LinkCapacities, shared_rate
from sim.network.flow import end_ps
from sim.topology.sharing_table import Sharing
from sim.units import Int64Array


@dataclass(frozen=True)
class Crossings:
    """Incidence of links and flows: all crossings of a link by a flow, those of one link side by side.

    Attributes:
        links: the links that are crossed, shape (k,).
        starts: where the crossings of each begin, shape (k,).
        flows: the flow of each crossing, shape (crossings,).
    """

    links: Int64Array
    starts: Int64Array
    flows: Int64Array

    @classmethod
    def of(cls, ways: Int64Array, num_links: int) -> Crossings:
        """Return the crossings of flows over *ways*, shape (m, h), padded with *num_links*."""
        flat = ways.ravel()
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        crossings = int(np.searchsorted(ordered, num_links))
        order, ordered = order[:crossings], ordered[:crossings]
        starts = (
            np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if crossings else np.zeros(0, np.int64)
        )
        return cls(ordered[starts], starts, order // ways.shape[1])

    @property
    def counts(self) -> Int64Array:
        """How many flows cross each of *links*."""
        return np.diff(self.starts, append=len(self.flows))

    def equal(self, values: Int64Array) -> Int64Array:
        """Return for each link whether its flows have one of *values*, shape (k,)."""
        there = values[self.flows]
        lowest = np.minimum.reduceat(there, self.starts)
        highest = np.maximum.reduceat(there, self.starts)
        equal: Int64Array = lowest == highest
        return equal


@dataclass(frozen=True)
class Classes:
    """Classes of flows and of links.

    Attributes:
        class_of: the class of each flow, shape (m,).
        amounts: what is left of a flow of each class, as `sim.network.flow.amount` counts.
        bandwidth: bytes/s of a link of each class.
        tables: the sharing table of each class of links.
        opposite: the class of the links opposite to each class of links; -1: none that matters is crossed.
        flows_on_link: for each class of links, how many flows of each class one of them carries.
    """

    class_of: Int64Array
    amounts: Sequence[int]
    bandwidth: Sequence[int]
    tables: Sequence[Sharing]
    opposite: Sequence[int]
    flows_on_link: Sequence[dict[int, int]]

    @classmethod
    def of(
        cls,
        links: Int64Array,
        crossings: Crossings,
        capacities: LinkCapacities,
        labels: Int64Array,
        amounts: Sequence[int],
        max_classes: int,
    ) -> Classes | None:
        """Return the coarsest classes of flows over *links*, or None if they are more than *max_classes*.

        Args:
            links: of each flow, shape (m, h), padded with ``capacities.num_links``.
            crossings: of links by flows.
            capacities: of all links.
            labels: which of *amounts* is left of each flow, shape (m,).
            amounts: different numbers.
            max_classes: of flows.
        """
        names, starts = crossings.links, crossings.starts
        local = np.full(capacities.num_links + 1, len(names), dtype=np.int64)
        local[names] = np.arange(len(names))
        ways = local[links]
        back = None if capacities.opposite is None else local[capacities.opposite[names]]
        link_class = np.unique(capacities.bandwidth[names], return_inverse=True)[1]
        if capacities.sharing is not None:
            link_class = _refined(link_class, _mixed(capacities.sharing.table[names]))
        flow_class = labels
        found = (0, 0)
        while found != (found := (int(flow_class.max()) + 1, int(link_class.max()) + 1)):
            if found[0] > max_classes:
                return None
            of_links = np.append(_mixed(link_class), np.uint64(0))
            flow_class = _refined(flow_class, of_links[ways].sum(axis=1, dtype=np.uint64))
            of_flows = np.add.reduceat(_mixed(flow_class)[crossings.flows], starts)
            if back is not None:
                of_flows += _mix(np.append(_mixed(link_class), np.uint64(0)))[back]
            link_class = _refined(link_class, of_flows)

        first_flow = np.unique(flow_class, return_index=True)[1]
        first_link = np.unique(link_class, return_index=True)[1]
        ends = starts + crossings.counts
        flows_on_link = []
        for link in first_link.tolist():
            there = flow_class[crossings.flows[starts[link] : ends[link]]]
            carried, times = np.unique(there, return_counts=True)
            flows_on_link.append(dict(zip(carried.tolist(), times.tolist(), strict=True)))
        classes = cls(
            flow_class,
            [amounts[label] for label in labels[first_flow].tolist()],
            capacities.bandwidth[names[first_link]].tolist(),
            capacities.tables_of(names[first_link]),
            [-1] * len(first_link) if back is None else np.append(link_class, -1)[back[first_link]].tolist(),
            flows_on_link,
        )
        classes._check(ways[first_flow], link_class)
        if back is not None:
            of_class = np.array(classes.opposite, dtype=np.int64)[link_class]
            if (np.append(link_class, -1)[back] != of_class).any():
                raise RuntimeError("classes have several opposites")
        return classes

    def _check(self, ways: Int64Array, link_class: Int64Array) -> None:
        """Count the crossings of each pair of classes from both sides; a collision of hashes would show."""
        num_links = np.bincount(link_class)
        num_flows = np.bincount(self.class_of)
        for flow, way in enumerate(ways):
            crossed = np.bincount(link_class[way[way < len(link_class)]], minlength=len(num_links))
            for link, times in enumerate(crossed.tolist()):
                carried = self.flows_on_link[link].get(flow, 0)
                if times * num_flows[flow] != carried * num_links[link]:
                    raise RuntimeError("classes are not equitable")


class Left(NamedTuple):
    """What is left of a flow: *rest* at *since_ps*, when it got its *rate*."""

    rest: int
    rate: int
    since_ps: int

    def at(self, time_ps: int) -> int:
        """Return what is left at *time_ps*, if the rate stays."""
        return self.rest - self.rate * (time_ps - self.since_ps)


def class_durations_ps(classes: Classes) -> list[int]:
    """Return the picoseconds after which the flows of each class end, all beginning at once."""
    durations = [0] * len(classes.amounts)
    for _, ends in _phases(classes):
        first = min(ends.values())
        for flow, end in ends.items():
            if end == first:
                durations[flow] = end
    return durations


def class_left(classes: Classes, elapsed_ps: int) -> dict[int, Left]:
    """Return what is left of the flows of each class that has not ended *elapsed_ps* after the beginning."""
    for left, ends in _phases(classes):
        if min(ends.values()) > elapsed_ps:
            return left
    return {}


def _phases(classes: Classes) -> Iterator[tuple[dict[int, Left], dict[int, int]]]:
    """Yield, for each time between two ends, what is left of each class and when it would end."""
    now = 0
    rest = {flow: amount for flow, amount in enumerate(classes.amounts) if amount}
    while rest:
        rates = _max_min(classes, rest)
        left = {flow: Left(amount, rates[flow], now) for flow, amount in rest.items()}
        ends = {flow: end_ps(now, amount, rates[flow]) for flow, amount in rest.items()}
        yield left, ends
        now = min(ends.values())
        rest = {flow: left[flow].at(now) for flow, end in ends.items() if end > now}


def _max_min(classes: Classes, active: dict[int, int]) -> dict[int, int]:
    """Return the rate of each class of *active* flows, as `sim.network.sharing.max_min_rates` would."""
    rates: dict[int, int] = {}
    carried = [{flow: n for flow, n in flows.items() if flow in active} for flows in classes.flows_on_link]
    num_flows = [sum(flows.values()) for flows in carried]
    free = [
        shared_rate(table, bandwidth, flows, opposite >= 0 and num_flows[opposite] > 0)
        for table, bandwidth, flows, opposite in zip(
            classes.tables, classes.bandwidth, num_flows, classes.opposite, strict=True
        )
    ]

    while len(rates) < len(active):
        rising = [sum(n for flow, n in flows.items() if flow not in rates) for flows in carried]
        level = min(free[link] // n for link, n in enumerate(rising) if n)
        full = [link for link, n in enumerate(rising) if n and free[link] // n == level]
        settled = {flow for link in full for flow in carried[link] if flow not in rates}
        rates |= dict.fromkeys(settled, level)
        for link, flows in enumerate(carried):
            free[link] -= level * sum(n for flow, n in flows.items() if flow in settled)
    return rates


def _refined(old: Int64Array, seen: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Int64Array:
    """Return classes that differ where *old* ones or what is *seen* from them do."""
    signature = _mixed(old) ^ _mix(seen)
    refined: Int64Array = np.unique(signature, return_inverse=True)[1]
    return refined


def _mixed(classes: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return _mix(classes.astype(np.uint64) + np.uint64(1))


def _mix(values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return 64 well-mixed bits of each value (splitmix64, Steele, Lea and Flood, OOPSLA 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
