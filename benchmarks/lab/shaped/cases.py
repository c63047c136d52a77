"""Cases of a shaped network: what is predicted there, and then measured.

Every file gets the same families, in sizes that its rates allow within the time there is:

    collectives  the vendor's own collectives and our programs, over sizes
    two jobs     two groups of every other host at once, which meet on the links between switches
    link change  a link that loses half its rate in the middle of a collective
    step         a training step whose gradients are reduced during its backward pass
    link cut     a link that is lost in the middle: what is foretold is an error, and no time
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from benchmarks.lab.shaped.timing import Call, fitting
from sim import LinkChange, LinkFailure, Topology
from testbed.output.table import seconds, spell_size

FAMILIES = ("collective", "two jobs", "link change", "step")

SMALL, MIDDLE = 64 << 10, 512 << 10
LARGE = (16 << 20, 8 << 20, 4 << 20, 2 << 20, 1 << 20)
"""Of which the largest is taken that there is time for."""

ALGORITHMS = (
    ("all_reduce", ("native", "ring", "halving_doubling", "direct", "tree")),
    ("all_gather", ("native", "ring")),
    ("reduce_scatter", ("native", "ring")),
    ("broadcast", ("native", "tree")),
    ("all_to_all", ("native", "direct")),
)
_MOMENT = Fraction(1, 2)
"""At which part of the time foretold a link changes or fails."""
_FACTOR = 0.5


@dataclass(frozen=True)
class Case:
    """One or several collectives that begin at one moment.

    Attributes:
        family: one of `FAMILIES`.
        calls: each of which is a row of the result.
        change: of a link while they run; None: none.
    """

    family: str
    calls: tuple[Call, ...]
    change: LinkChange | LinkFailure | None = None

    def names(self) -> Iterator[str]:
        """Yield what each call is called."""
        for number, call in enumerate(self.calls):
            name = f"{call.collective} {call.algorithm} {spell_size(call.nbytes)}"
            if len(self.calls) > 1:
                hosts = ", ".join(map(str, call.members))
                name = f"job {number + 1} of {len(self.calls)} (hosts {hosts}): {name}"
            if self.change is not None:
                change = self.change
                what = f"at {change.factor:g} of its rate" if isinstance(change, LinkChange) else "cut"
                name += f", {change.link} {what} after {seconds(change.at_ps / 1e12)}"
            yield name


def collectives(num_hosts: int, large: int) -> Iterator[Case]:
    """Yield every collective and algorithm at three sizes, of which *large* is the largest."""
    for nbytes in dict.fromkeys((SMALL, MIDDLE, large)):
        for collective, algorithms in ALGORITHMS:
            size = fitting(nbytes, collective, num_hosts)
            for algorithm in algorithms:
                yield Case("collective", (Call(collective, algorithm, size),))


def jobs(num_hosts: int, large: int) -> Iterator[Case]:
    """Yield two jobs at once, each of every other host; none where there are fewer than four."""
    if num_hosts < 4:
        return
    members = tuple(range(0, num_hosts, 2)), tuple(range(1, num_hosts, 2))
    for algorithm in ("native", "ring"):
        yield Case("two jobs", tuple(Call("all_reduce", algorithm, large, group) for group in members))


def changes(topology: Topology, large: int, duration: Callable[[Case], float]) -> Iterator[Case]:
    """Yield collectives during which the link that most routes cross loses half its rate."""
    for algorithm in ("native", "ring"):
        undisturbed = Case("link change", (Call("all_reduce", algorithm, large),))
        at = duration(undisturbed) * float(_MOMENT)
        yield Case(
            "link change", undisturbed.calls, LinkChange(topology.link_name(busiest(topology)), at, _FACTOR)
        )


def cut(topology: Topology, large: int, duration: Callable[[Case], float]) -> Case:
    """Return a collective during which the link that most routes cross is lost."""
    undisturbed = Case("link cut", (Call("all_reduce", "ring", large),))
    at = duration(undisturbed) * float(_MOMENT)
    return Case("link cut", undisturbed.calls, LinkFailure(topology.link_name(busiest(topology)), at))


def busiest(topology: Topology) -> int:
    """Return the link that has most routes for its rate; of several, the first."""
    hosts = range(topology.num_ranks)
    crossed = Counter(link for pair in permutations(hosts, 2) for link in topology.route(*pair))
    return max(sorted(crossed), key=lambda link: Fraction(crossed[link], int(topology.link_bandwidth[link])))


def largest(choose: Callable[[int], Sequence[Case]], duration: Callable[[Case], float], most: float) -> int:
    """Return the largest of `LARGE` whose cases take at most *most* seconds each time, or the least."""
    for nbytes in LARGE:
        if sum(map(duration, choose(nbytes))) <= most:
            return nbytes
    return LARGE[-1]
