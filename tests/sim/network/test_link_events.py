"""Messages, and links that change, fail or carry more, against a brute-force fluid simulator, with ``==``."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim import Background, LinkFailedError, Network, Topology, TopologyError
from sim.network.coflow import Coflow, CoflowAccelerator, CoflowLaunch
from sim.network.link_events import LinkEvents, OtherTraffic
from sim.network.recorder import Recorder
from sim.units import SECOND, transfer_ps
from tests.given import switch
from tests.sim.fluid import Change, Message, fluid
from tests.sim.networks import sharing_networks
from tests.sim.sending import arrivals, network_on

Case = tuple[Topology, list[Message], list[Change], list[Background]]


def network_of(topology: Topology, changes=(), backgrounds=(), recorder: Recorder | None = None) -> Network:
    network = network_on(topology, recorder)
    events = LinkEvents(network, lambda links: topology.without_links(links).routing)
    for at, link, bandwidth in sorted(changes, key=lambda change: not change[2]):
        if bandwidth:
            events.change(at, link, bandwidth)
        else:
            events.fail(at, link, reroute=True)
    for one in backgrounds:
        traffic = OtherTraffic(one.source, one.destination, one.rate, one.nbytes, one.start_ps, one.stop_ps)
        events.add(traffic)
    return network


def accelerated(network: Network) -> Network:
    network.accelerator = CoflowAccelerator(network, min_messages=2)
    return network


def launch(network: Network, messages: list[Message]) -> list[int]:
    """Return when each message arrives; those sent at one time are launched together."""
    arrived = [-1] * len(messages)
    done = [network.env.event() for _ in messages]

    def together(sent_ps, numbers):
        yield network.env.timeout(sent_ps)
        _, source, destination, nbytes = np.array([messages[number] for number in numbers]).T

        def note(some):
            for number in numbers if some is None else [numbers[place] for place in some.tolist()]:
                arrived[number] = int(network.env.now)
                done[number].succeed()

        coflow = Coflow.between(network.topology, source, destination)
        network.launch(CoflowLaunch(coflow, nbytes, note))

    for sent_ps in sorted({message[0] for message in messages}):
        numbers = [number for number, message in enumerate(messages) if message[0] == sent_ps]
        network.env.process(together(sent_ps, numbers))
    network.env.run(network.env.all_of(done))
    return arrived


@st.composite
def cases(draw: st.DrawFn) -> Case:
    slow = draw(st.booleans())
    bandwidth = st.integers(1, 30) if slow else st.integers(10**9, 10**12)
    topology = draw(sharing_networks(bandwidth, max_ranks=8).filter(lambda topology: topology.num_ranks > 1))
    each = [draw(bandwidth) for _ in range(topology.num_links)]
    topology = replace(topology, link_bandwidth=np.array(each))
    times = st.integers(0, 6).map(lambda s: s * SECOND) if slow else st.integers(0, 10**8)
    ranks = st.permutations(range(topology.num_ranks)).map(lambda order: tuple(order[:2]))
    size = st.integers(1, 100 if slow else 2**22)  # nobody sends empty messages, which no failure finds
    common = st.sampled_from(draw(st.lists(times, min_size=1, max_size=3)))
    messages = [(draw(common), *draw(ranks), draw(size)) for _ in range(draw(st.integers(1, 12)))]
    links = st.integers(0, topology.num_links - 1)
    changes = draw(st.lists(st.tuples(times, links, bandwidth), max_size=3, unique_by=lambda c: c[:2]))
    avoided = set()
    for link in draw(st.lists(links, max_size=2, unique=True)):
        with suppress(TopologyError):
            topology.without_links(avoided | {link})
            avoided.add(link)
            changes.append((draw(times), link, 0))
    changes.sort()
    backgrounds = []
    for _ in range(draw(st.integers(0, 2))):
        source, destination = draw(ranks)
        start = draw(times)
        stop = draw(st.none() | times.filter(lambda stop, start=start: stop > start))
        rate, nbytes = draw(st.none() | bandwidth), draw(st.none() | size)
        if rate is None and nbytes is None:
            rate = draw(bandwidth)
        backgrounds.append(
            Background(source, destination, rate, nbytes, f"{start}ps", None if stop is None else f"{stop}ps")
        )
    return topology, messages, changes, backgrounds


SLOW_PAIR = Topology.switch(num_ranks=2, bandwidth=10, latency=0)
AWAY_AND_BACK = [(s * SECOND, 1, 0, nbytes) for s, nbytes in [(0, 20), (1, 88), (2, 28), (2, 50)]]
"""Of which an end moves away and back."""


@example((SLOW_PAIR, AWAY_AND_BACK, [], []))
@given(cases())
def test_arrivals_equal_those_of_a_brute_force_simulator_whatever_happens_to_links(case):
    topology, messages, changes, backgrounds = case
    expected = fluid(topology, messages, changes, backgrounds)

    assert arrivals(network_of(topology, changes, backgrounds), messages) == expected
    assert arrivals(network_of(topology, changes, backgrounds), messages[::-1])[::-1] == expected
    assert launch(network_of(topology, changes, backgrounds), messages) == expected
    assert launch(accelerated(network_of(topology, changes, backgrounds)), messages) == expected
    recorder = Recorder(topology)
    assert launch(network_of(topology, changes, backgrounds, recorder=recorder), messages) == expected


@given(cases())
def test_links_count_the_bytes_of_messages_wherever_these_have_gone(case):
    topology, messages, changes, _ = case
    changes = [change for change in changes if not change[2]]
    networks = []
    for how in (arrivals, launch):
        network = accelerated(network_of(topology, changes))
        how(network, messages)
        networks.append(network)
    recorder = Recorder(topology)
    arrivals(network_of(topology, changes, recorder=recorder), messages)

    single, together = (network.link_bytes for network in networks)
    assert (single == together).all()
    assert (abs(single - recorder.link_bytes) <= len(messages)).all()  # whole bytes, at each failure


def test_messages_lost_with_a_link_are_named_and_so_is_the_link():
    ring = Topology.ring(num_ranks=4, bandwidth=10**9, latency="1us")
    network = network_on(ring)
    LinkEvents(network, lambda links: ring.without_links(links).routing).fail(10**6, 0, reroute=False)

    network.transfer(0, 1, 10**6)
    network.transfer(3, 1, 10**6, lambda: ("all_reduce by hand", "step 7: rank 3 sends to rank 1"))
    network.transfer(1, 0, 10**6)
    with pytest.raises(LinkFailedError) as failed:
        network.env.run()

    assert failed.value.links == ("rank 0 to 1",)
    assert failed.value.time_ps == 10**6
    assert failed.value.lost == (
        ("a message", "rank 0 to rank 1"),
        ("all_reduce by hand", "step 7: rank 3 sends to rank 1"),
    )
    assert str(failed.value) == (
        "ring: link rank 0 to 1 has failed; lost at 1 us: a message, rank 0 to rank 1; all_reduce by hand, "
        "step 7: rank 3 sends to rank 1; with reroute=True messages take another way where there is one"
    )


def test_who_is_cut_off_by_a_failure_is_named():
    network = network_of(switch(3), [(10**6, 1, 0)])

    with pytest.raises(LinkFailedError, match=r"without rank 1 up: rank 1 cut off from the other ranks$"):
        arrivals(network, [(5 * 10**6, 1, 2, 100)])


@pytest.mark.parametrize("endless", [True, False])
def test_background_on_a_link_that_fails_goes_on_by_another_way(endless):
    tree = Topology.leaf_spine(
        num_ranks=4, hosts_per_leaf=2, num_spines=2, bandwidth=10**9, uplink_bandwidth=10**9, latency=0
    )
    (own,), (other,) = ({tree.route(*pair)[1]} for pair in [(0, 2), (1, 3)])
    assert own != other
    nbytes = None if endless else 8 * 10**6
    stream = Background(0, 2, bandwidth=10**9, nbytes=nbytes)

    (end,) = arrivals(network_of(tree, [(10**9, own, 0)], [stream]), [(0, 1, 3, 3 * 10**6)])

    assert end == 10**9 + transfer_ps(2 * 10**6, 5 * 10**8)


def test_flows_that_end_together_are_delivered_in_the_order_sent():
    network = network_on(switch(9))
    delivered = []

    for source in (5, 3, 8, 1, 7):
        event = network.transfer(source, source - 1, 2**20)
        event.callbacks.append(lambda _, source=source: delivered.append(source))
    network.env.run()

    assert delivered == [5, 3, 8, 1, 7]


def test_numbers_of_numpy_are_as_good_as_ints():
    message = (0, 0, 1, 2**40)

    of_numpy, of_python = (
        arrivals(network_on(switch(2)), [own]) for own in (tuple(np.array(message)), message)
    )

    assert of_numpy == of_python
