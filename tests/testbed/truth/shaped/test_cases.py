"""Cases of a shaped network: enough of them, of sizes that there is time for, and the same on every run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sim import LinkChange, LinkFailure, Topology
from sim.files.network_file import read_network
from testbed.truth.shaped import cases
from testbed.truth.shaped.cases import Case
from testbed.truth.shaped.plan import plan, wire

EXAMPLES = sorted(Path("examples/networks/shaped").glob("*.toml"))


def at_a_rate(case: Case) -> float:
    """Return what *case* would take if all its bytes passed one link of 25 MB/s."""
    return sum(call.nbytes for call in case.calls) / 25e6


@pytest.mark.parametrize("num_hosts", range(2, 9))
def test_every_network_has_24_rows_at_least(num_hosts: int) -> None:
    topology = Topology.switch(num_ranks=num_hosts, bandwidth=1e7, latency=0)
    large = cases.LARGE[0]
    chosen = [
        *cases.collectives(num_hosts, large),
        *cases.jobs(num_hosts, large),
        *cases.changes(topology, large, at_a_rate),
    ]
    names = [name for case in chosen for name in case.names()]

    assert len(names) == len(set(names)) >= 24


def test_jobs_share_no_host() -> None:
    for case in cases.jobs(7, 1 << 20):
        hosts = Counter(host for call in case.calls for host in call.members)
        assert hosts == Counter(range(7))
    assert list(cases.jobs(3, 1 << 20)) == []


def test_the_largest_size_is_the_largest_that_there_is_time_for() -> None:
    def chosen(large: int) -> list[Case]:
        return list(cases.collectives(4, large))

    fits = cases.largest(chosen, at_a_rate, 8.0)
    assert sum(map(at_a_rate, chosen(fits))) <= 8.0 < sum(map(at_a_rate, chosen(2 * fits)))
    assert cases.largest(chosen, at_a_rate, 0.0) == cases.LARGE[-1]


def test_the_link_that_changes_is_the_one_with_most_routes_for_its_rate() -> None:
    racks = Topology.leaf_spine(num_ranks=8, hosts_per_leaf=4, bandwidth=1e7, uplink_bandwidth=2e7, latency=0)
    (change, _) = (case.change for case in cases.changes(racks, 1 << 20, at_a_rate))
    lost = cases.cut(racks, 1 << 20, at_a_rate).change

    assert isinstance(change, LinkChange)
    assert isinstance(lost, LinkFailure)
    assert change.link == lost.link == "leaf 0 to spine 0"
    assert change.at == pytest.approx(at_a_rate(Case("", cases.cut(racks, 1 << 20, at_a_rate).calls)) / 2)


def test_there_are_twelve_examples_and_each_can_be_built() -> None:
    assert len(EXAMPLES) >= 12
    for path in EXAMPLES:
        made = plan(wire(read_network(path)))
        assert 3 <= made.num_hosts <= 8
        assert made.unbuilt == ()
