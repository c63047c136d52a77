"""Classes of tc at a port: one for each pair of hosts, with its fair part of the link's rate."""

from __future__ import annotations

import re

from sim import Topology
from testbed.truth.shaped.plan import plan
from testbed.truth.shaped.shaping import LEAST_BURST, Shaping

RACKS = Topology.leaf_spine(
    num_ranks=4, hosts_per_leaf=2, bandwidth="80Mbps", uplink_bandwidth="160Mbps", latency=0
)


def test_a_host_sends_to_every_other_over_its_link_and_racks_over_the_trunk() -> None:
    planned = plan(RACKS)

    trunk = planned.link_of("leaf 0 to spine 0")
    assert planned.pairs_over(planned.link_of("rank 0 up")) == [(0, 1), (0, 2), (0, 3)]
    assert planned.pairs_over(trunk) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_pairs_have_equal_parts_assured_and_may_take_all() -> None:
    lines = Shaping().port("eth0", 10**7, [("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.3")])

    classes = [line for line in lines if "parent 1:1 " in line and "class" in line]
    assert [re.findall(r"htb rate (\d+)bit ceil (\d+)bit", line) for line in classes] == [
        [("40000000", "80000000")]
    ] * 3
    assert sum("match ip src 10.0.0.1/32 match ip dst" in line for line in lines) == 2


def test_another_rate_changes_the_classes_that_there_are() -> None:
    shaping = Shaping()
    built = shaping.port("eth0", 10**7, [("10.0.0.1", "10.0.0.2")])

    changed = shaping.changed("eth0", 5 * 10**6, 1)

    identities = [re.findall(r"classid \S+", line) for line in built if line.startswith("class add")]
    assert [re.findall(r"classid \S+", line) for line in changed] == identities
    assert all(line.startswith("class change dev eth0") for line in changed)


def test_a_burst_is_a_time_of_the_rate_but_at_least_a_frame() -> None:
    fast, slow = (Shaping().changed("eth0", rate, 0)[0] for rate in (50_000_000, 1000))

    assert "burst 8000 " in fast
    assert f"burst {LEAST_BURST} " in slow
