"""Use of links: the bytes of a collective on each, and the bottleneck.

Bytes follow from the program, the sizes and the routes alone, so they are counted after the run, when
somebody asks, and cost nothing otherwise.  How long a link was saturated follows from the rates of all flows
over time, which only a run that was observed has.

Utilisation is the part of what a link could have carried from the first rank's start to the last rank's
end.  It is below 1 even on a link that is never idle while data moves, as latencies take time, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from collectives.errors import NotExactError
from collectives.program import Algorithm, Send
from collectives.program.chunking import Chunking
from collectives.timing.job import PlannedJob
from collectives.timing.rows.pattern import Pattern
from collectives.timing.rows.repeated_rows import SiblingPattern, SizedRow, sized_rows
from collectives.timing.rows.sizes import of_each
from sim.topology import Topology
from sim.units import SECOND, Int64Array, to_seconds


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What a collective has put on a directed link.

    Attributes:
        name: as `Topology.link_name` gives it.
        bandwidth: of the link, bytes/s.
        nbytes: that crossed it.
        utilisation: of what it could have carried in the time of the run, from 0 to 1.
        saturated_seconds: how long flows took all that it carries; None where the run was not observed.
    """

    name: str
    bandwidth: int
    nbytes: int
    utilisation: float
    saturated_seconds: float | None


class Links(Sequence[LinkUse]):
    """The use of every link, by the topology's numbers.

    Args:
        topology: the network.
        nbytes: over each link, shape (num_links,).
        time_ps: of the run.
        saturated_ps: of each link, where the run was observed.
        mean_bandwidth: of each link over the time of the run; by default that of *topology*.
    """

    def __init__(
        self,
        topology: Topology,
        nbytes: Int64Array,
        time_ps: int,
        saturated_ps: Int64Array | None = None,
        mean_bandwidth: Any = None,
    ) -> None:
        self.topology = topology
        self.nbytes = nbytes
        self.saturated_ps = saturated_ps
        self._time_ps = time_ps
        self._bandwidth = topology.link_bandwidth if mean_bandwidth is None else mean_bandwidth

    def __len__(self) -> int:
        return len(self.nbytes)

    @overload
    def __getitem__(self, link: int) -> LinkUse: ...

    @overload
    def __getitem__(self, link: slice) -> list[LinkUse]: ...

    def __getitem__(self, link: int | slice) -> LinkUse | list[LinkUse]:
        if isinstance(link, slice):
            return [self[number] for number in range(len(self))[link]]
        number = range(len(self))[link]
        saturated_ps = self.saturated_ps
        return LinkUse(
            name=self.topology.link_name(number),
            bandwidth=int(self.topology.link_bandwidth[number]),
            nbytes=int(self.nbytes[number]),
            utilisation=float(self.utilisation[number]),
            saturated_seconds=None if saturated_ps is None else to_seconds(int(saturated_ps[number])),
        )

    @cached_property
    def utilisation(self) -> Any:
        """Of each link, float64 of shape (num_links,)."""
        carried = self.nbytes / self._bandwidth
        return carried * SECOND / self._time_ps if self._time_ps else np.zeros(len(self))

    @property
    def busiest(self) -> list[int]:
        """The numbers of the links that were used: those longest saturated, if known, then fullest, first."""
        used = np.flatnonzero(self.nbytes)
        keys = [-self.utilisation[used]]
        if self.saturated_ps is not None:
            keys.append(-self.saturated_ps[used])
        order: list[int] = used[np.lexsort(keys)].tolist()
        return order

    @property
    def bottleneck(self) -> LinkUse | None:
        """The link that was saturated longest, or, where that is not known, of the highest utilisation.

        Of several the first; None where nothing was sent.
        """
        busiest = self.busiest
        return self[busiest[0]] if busiest else None

    def rows(self) -> list[dict[str, Any]]:
        """Return the use of every link as JSON types."""
        return [asdict(use) for use in self]


class Traffic:
    """Messages, and their bytes on the links that they cross, added up.

    Args:
        topology: says which links.
        hosts: the place of each rank in it.

    Attributes:
        num_messages: that are not empty.
    """

    def __init__(self, topology: Topology, hosts: Int64Array) -> None:
        self.num_messages = 0
        self._topology = topology
        self._hosts = hosts
        self._nbytes = np.zeros(topology.num_links + 1, dtype=np.int64)  # the last is for no link
        self._pattern: Pattern | SiblingPattern | None = None
        self._total = np.zeros(0, dtype=np.int64)  # of each message of rows of that pattern

    @classmethod
    def of(cls, planned: PlannedJob) -> Traffic:
        """Return what *planned* sends, over the routes of its topology, with the links of slow ranks."""
        hosts = np.array(planned.hosts, dtype=np.int64)
        try:
            traffic = cls(planned.scenario.topology, hosts)
            for row in sized_rows(planned.algorithm, len(hosts), planned.chunking):
                traffic.add(row)
        except NotExactError:
            traffic = cls(planned.scenario.topology, hosts)
            traffic.add_rank_by_rank(planned.algorithm, planned.chunking)
        return traffic

    def add(self, row: SizedRow) -> None:
        """Count *row*; links of a pattern that repeats are looked up when another one comes."""
        _, pattern, sizes, count = row
        num_messages = len(pattern.source)
        if pattern is not self._pattern:
            self._count()
            self._pattern, self._total = pattern, np.zeros(num_messages, dtype=np.int64)
        each = of_each(sizes, num_messages)
        self.num_messages += count * int(np.count_nonzero(each))
        self._total += count * each

    def add_rank_by_rank(self, algorithm: Algorithm, chunking: Chunking) -> None:
        """Count what each rank sends by *algorithm*."""
        num_ranks = len(self._hosts)
        for rank in range(num_ranks):
            to: defaultdict[tuple[int, int], int] = defaultdict(int)
            for step in algorithm.steps(rank, num_ranks):
                for operation in step:
                    if isinstance(operation, Send):
                        nbytes = chunking.nbytes(operation.chunk, operation.num_chunks)
                        to[operation.peer, operation.channel] += nbytes
                        self.num_messages += nbytes > 0
            peers, channels = np.array([*to], dtype=np.int64).reshape(-1, 2).T
            sizes = np.array([*to.values()], dtype=np.int64)
            self.add_messages(np.full_like(peers, rank), peers, channels, sizes)

    def add_messages(
        self, source: Int64Array, destination: Int64Array, channel: Int64Array, nbytes: Int64Array
    ) -> None:
        """Count bytes from *source* to *destination* ranks, over connections of *channel*."""
        some = np.flatnonzero(nbytes)
        ends = self._hosts[source[some]], self._hosts[destination[some]]
        routes = self._topology.routes(*ends, channel[some])
        for links in routes.T:
            np.add.at(self._nbytes, links, nbytes[some])

    @property
    def link_bytes(self) -> Int64Array:
        """What crosses each link, shape (num_links,)."""
        self._count()
        return self._nbytes[:-1]

    def _count(self) -> None:
        if self._pattern is not None:
            pattern = self._pattern
            self.add_messages(pattern.source, pattern.destination, pattern.channel, self._total)
            self._pattern = None
