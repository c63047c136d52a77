"""Shaped networks before they are built: plans, classes of tc, cases and rows."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab.shaped import cases
from benchmarks.lab.shaped.cases import Case
from benchmarks.lab.shaped.plan import plan, wire
from benchmarks.lab.shaped.rows import Prediction, Row, by_family, figures
from benchmarks.lab.shaped.shaping import COMMON, LEAST_BURST, Shaping
from collectives.errors import NotSupportedError
from sim import LinkChange, LinkFailure, Topology
from sim.topology.description import load_network
from tests.given import nodes, switch


def walk(made, source, destination):
    """Return the links on the way that devices and forwarding tables of *made* give a message."""
    device_of = {(hop.vertex, hop.destination): hop.device for hop in made.hops}
    across = {}
    for here, there in made.cables:
        across[here.vertex, here.device] = here, there
        across[there.vertex, there.device] = there, here
    links, vertex = [], source
    while vertex != destination:
        end, other = across[vertex, device_of[vertex, destination]]
        links += [] if end.link is None else [end.link]
        vertex = other.vertex
    return links


def racks(num_ranks, hosts_per_leaf, num_spines=1, **fields):
    rates = {"bandwidth": 1e7, "uplink_bandwidth": 2e7, "latency": 0, **fields}
    return Topology.leaf_spine(
        num_ranks=num_ranks, hosts_per_leaf=hosts_per_leaf, num_spines=num_spines, **rates
    )


def pairs_of_ranks(num_nodes, cards):
    rates = {"intra_bandwidth": 4e7, "intra_latency": 0, "nic_bandwidth": 1e7, "nic_latency": 0}
    return nodes(num_nodes, 2, cards, **rates)


NETWORKS = st.one_of(
    st.builds(lambda ranks: switch(ranks, 1e7, 0), st.integers(2, 9)),
    st.builds(racks, st.integers(2, 9), st.integers(1, 4), st.integers(1, 3)),
    st.builds(pairs_of_ranks, st.integers(1, 4), st.integers(1, 2)),
)


@given(NETWORKS)
def test_messages_take_the_routes_of_the_simulator(topology):
    made = plan(topology)

    for source in range(topology.num_ranks):
        for destination in range(topology.num_ranks):
            if source != destination:
                assert walk(made, source, destination) == list(topology.route(source, destination))


@given(NETWORKS)
def test_each_link_leaves_by_one_device_at_its_own_rate(topology):
    rates = {end.link: end.rate for end in plan(topology).ends() if end.link is not None}

    assert rates == dict(enumerate(topology.link_bandwidth.tolist()))


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (
            Topology.ring(num_ranks=4, bandwidth=1e7, latency=0),
            "pass through rank 1; a shaped network has hosts at its edge",
        ),
        (racks(8, 2, 4, uplink_bandwidth=1e7, routing="ecmp"), "depends on the source; .* not ecmp"),
        (switch(1000, 1e7, 0), "1000 ranks; a shaped network has 2 to 16 hosts"),
    ],
)
def test_what_switches_cannot_forward_is_refused_by_name(topology, said):
    with pytest.raises(NotSupportedError, match=said):
        plan(topology)


def test_wires_have_the_rates_of_the_file_without_its_efficiencies(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text(
        'schema = 1\nkind = "switch"\nnum_ranks = 3\n'
        'bandwidth = "80Mbps"\nefficiency = 0.5\nlatency = "1us"\nfabric = "ethernet-tcp"\n'
    )
    network = load_network(file)

    assert set(wire(network).link_bandwidth.tolist()) == {10_000_000}
    assert wire(network).sharing is None
    (said,) = plan(wire(network)).unbuilt
    assert said.startswith("latencies of the file (up to 1 us a link) are not built")


EXAMPLES = sorted(Path("examples/networks/shaped").glob("*.toml"))


def at_a_rate(case):
    """Return what *case* would take if all its bytes passed one link of 25 MB/s."""
    return sum(call.nbytes for call in case.calls) / 25e6


@pytest.mark.parametrize("num_hosts", range(2, 9))
def test_every_network_has_24_rows_at_least_and_jobs_share_no_host(num_hosts):
    topology, large = switch(num_hosts, 1e7, 0), cases.LARGE[0]
    jobs = list(cases.jobs(num_hosts, large))

    chosen = [*cases.collectives(num_hosts, large), *jobs, *cases.changes(topology, large, at_a_rate)]

    names = [name for case in chosen for name in case.names()]
    assert len(names) == len(set(names)) >= 24
    for case in jobs:
        assert Counter(host for call in case.calls for host in call.members) == Counter(range(num_hosts))
    assert bool(jobs) == (num_hosts > 3)


def test_the_largest_size_is_the_largest_that_there_is_time_for():
    def chosen(large):
        return list(cases.collectives(4, large))

    fits = cases.largest(chosen, at_a_rate, 8.0)
    assert sum(map(at_a_rate, chosen(fits))) <= 8.0 < sum(map(at_a_rate, chosen(2 * fits)))
    assert cases.largest(chosen, at_a_rate, 0.0) == cases.LARGE[-1]


def test_the_link_that_changes_is_the_one_with_most_routes_for_its_rate():
    two = racks(8, 4)
    (change, _) = (case.change for case in cases.changes(two, 1 << 20, at_a_rate))
    cut = cases.cut(two, 1 << 20, at_a_rate)
    lost = cut.change

    assert isinstance(change, LinkChange)
    assert isinstance(lost, LinkFailure)
    assert change.link == lost.link == "leaf 0 to spine 0"
    assert change.at == pytest.approx(at_a_rate(Case("", cut.calls)) / 2)


def test_there_are_twelve_examples_and_each_can_be_built():
    assert len(EXAMPLES) >= 12
    for path in EXAMPLES:
        made = plan(wire(load_network(path)))
        assert 3 <= made.num_hosts <= 8
        assert made.unbuilt == ()


def test_a_host_sends_to_every_other_over_its_link_and_racks_over_the_trunk():
    planned = plan(racks(4, 2))

    trunk = planned.link_of("leaf 0 to spine 0")
    assert planned.pairs_over(planned.link_of("rank 0 up")) == [(0, 1), (0, 2), (0, 3)]
    assert planned.pairs_over(trunk) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_pairs_have_equal_parts_assured_and_may_take_all():
    lines = Shaping().port("eth0", 10**7, [("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.0.0.3")])

    classes = [line for line in lines if "parent 1:1 " in line and "class" in line]
    assert [re.findall(r"htb rate (\d+)bit ceil (\d+)bit", line) for line in classes] == [
        [("40000000", "80000000")]
    ] * 3
    assert sum("match ip src 10.0.0.1/32 match ip dst" in line for line in lines) == 2


def test_a_port_of_a_common_switch_has_one_queue_for_all_and_its_hosts_have_one_for_each():
    pairs = [("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.2")]

    at_switch, at_host = (COMMON.port("eth0", 10**7, pairs, at_switch=own) for own in (True, False))

    assert [re.findall(r"root tbf rate (\d+)bit .* limit (\d+)", line) for line in at_switch] == [
        [("80000000", str(COMMON.port_queue))]
    ]
    assert sum("bfifo" in line for line in at_host) == len(pairs)


def test_another_rate_changes_the_classes_that_there_are_and_a_burst_is_a_frame_at_least():
    shaping = Shaping()
    built = shaping.port("eth0", 10**7, [("10.0.0.1", "10.0.0.2")])

    changed = shaping.changed("eth0", 5 * 10**7, 1)

    identities = [re.findall(r"classid \S+", line) for line in built if line.startswith("class add")]
    assert [re.findall(r"classid \S+", line) for line in changed] == identities
    assert all(line.startswith("class change dev eth0") for line in changed)
    assert "burst 8000 " in changed[0]
    assert f"burst {LEAST_BURST} " in shaping.changed("eth0", 1000, 0)[0]


def row(predicted, *seconds, nbytes=1 << 20, family="collective"):
    return Row.of(Prediction("net", family, "a case", "all_reduce", "ring", nbytes, 4, predicted), seconds)


def test_an_error_is_predicted_over_median_less_one_and_json_gives_the_row_back():
    one = row(0.9, 1.5, 1.0, 0.5)

    assert one.measured == 1.0
    assert one.error == pytest.approx(-0.1)
    assert one.spread == pytest.approx(1.0)
    assert Row.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_small_rows_are_judged_apart_and_other_families_are_no_plain_collectives():
    errors = figures(
        [row(1.1, 1.0), row(0.8, 1.0, 0.95, 1.05), row(1.02, 1.0), row(3.0, 1.0, nbytes=(512 << 10) - 4)]
    )

    assert errors["num_rows"] == 4
    found = [
        errors[name] for name in ("median_error", "worst_error", "worst_beyond_spread", "small_median_error")
    ]
    assert found == pytest.approx([0.1, 0.2, 0.1, 2.0])
    assert set(by_family([row(1, 1), row(1, 1, family="two jobs")])) == {"all_reduce ring", "two jobs ring"}
