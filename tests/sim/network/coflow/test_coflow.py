"""Coflows, and their accelerator."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.network.coflow import Attempts, Coflow, CoflowAccelerator, CoflowLaunch
from sim.topology import Topology
from sim.units import transfer_ps
from tests.given import switch
from tests.sim.networks import sharing_networks
from tests.sim.sending import arrivals, network_on


@st.composite
def coflows(draw: st.DrawFn) -> tuple[Topology, Coflow, list[int]]:
    topology = draw(
        sharing_networks(st.integers(100, 10**12)).filter(lambda topology: topology.num_ranks > 1)
    )
    p = topology.num_ranks
    shifts = st.lists(st.integers(1, p - 1), min_size=1, max_size=3)
    if draw(st.booleans()):
        pairs = [(rank, (rank + shift) % p) for shift in draw(shifts) for rank in range(p)]
    else:
        pair = st.tuples(st.integers(0, p - 1), st.integers(1, p - 1))
        pairs = [(rank, (rank + ahead) % p) for rank, ahead in draw(st.lists(pair, min_size=1, max_size=12))]
    usual = draw(st.integers(0, 10**6))
    size = st.just(usual) | st.integers(0, 10**6) if draw(st.booleans()) else st.just(usual)
    sizes = draw(st.lists(size, min_size=len(pairs), max_size=len(pairs)))
    source, destination = np.array(pairs).T
    return topology, Coflow.between(topology, source, destination), sizes


@given(coflows())
def test_a_coflow_ends_as_its_messages_do_one_by_one(case):
    topology, coflow, sizes = case
    together = int(coflow.latency_ps.max())  # when all messages reach their links
    sent = (together - coflow.latency_ps).tolist()

    durations = coflow.durations_ps(np.array(sizes))

    if durations is not None:
        messages = list(zip(sent, coflow.source.tolist(), coflow.destination.tolist(), sizes, strict=True))
        ends = arrivals(network_on(topology), messages)
        assert durations.tolist() == [end - together for end in ends]
        if len({*sizes}) == 1:
            assert np.array_equal(durations, coflow.durations_ps(sizes[0]))


Launch = tuple[int, list[tuple[int, int]], list[int], bool]
"""When (ps), the pairs, their sizes, and whether only every other message is sent."""


def all_pairs(num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(s, d) for s in range(num_ranks) for d in range(num_ranks) if s != d]
    source, destination = np.array(pairs).T
    return source, destination


def test_an_all_to_all_whose_last_part_is_shorter_ends_in_two_phases():
    coflow = Coflow.between(switch(64), *all_pairs(64))
    sizes = np.where(coflow.destination == 63, 500_000, 1_000_000)

    durations = coflow.durations_ps(sizes)

    assert set(durations[sizes == 500_000]) == {transfer_ps(500_000 * 63, 12_500_000_000)}
    assert set(durations[sizes == 1_000_000]) == {transfer_ps(1_000_000 * 63, 12_500_000_000)}


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Topology, list[Launch]]:
    bandwidth = st.sampled_from([10**9, 3 * 10**9]) | st.integers(10**9, 10**12)
    topology = draw(sharing_networks(bandwidth, max_ranks=20).filter(lambda topology: topology.num_ranks > 1))
    p = topology.num_ranks
    launches = []
    for _ in range(draw(st.integers(1, 4))):
        shifts = draw(st.lists(st.integers(1, p - 1), min_size=1, max_size=2))
        pairs = [(rank, (rank + shift) % p) for shift in shifts for rank in range(p)]
        pairs = pairs[: draw(st.sampled_from([1, 3, len(pairs), len(pairs)]))]
        usual = draw(st.integers(1, 10**6))
        sizes = [usual] * len(pairs)
        for _ in range(draw(st.integers(0, 2))):
            sizes[draw(st.integers(0, len(pairs) - 1))] = draw(st.integers(1, 10**6))
        launches.append((draw(st.integers(0, 3) | st.integers(0, 10**9)), pairs, sizes, draw(st.booleans())))
    return topology, launches


def messages_of(launch: Launch) -> list[int]:
    return list(range(0, len(launch[1]), 2 if launch[3] else 1))


def together(
    topology: Topology, launches: list[Launch], accelerated: bool
) -> tuple[list[dict[int, int]], list[int]]:
    """Return when each message of each launch arrives, and the bytes on each link."""
    network = network_on(topology)
    env = network.env
    if accelerated:
        network.accelerator = CoflowAccelerator(network, min_messages=2)
    arrived_of = [{} for _ in launches]
    attempts = Attempts()

    def send(launch, arrival):
        yield env.timeout(launch[0])
        source, destination = np.array(launch[1]).T
        some = np.array(messages_of(launch))
        sizes = np.array(launch[2])[some]

        def arrived(numbers):
            for number in some.tolist() if numbers is None else numbers.tolist():
                assert number not in arrival
                arrival[number] = int(env.now)

        if (sizes == sizes[0]).all():
            sizes = int(sizes[0])
        coflow = Coflow.between(topology, source, destination)
        network.launch(CoflowLaunch(coflow, sizes, arrived, some if launch[3] else None, None, attempts))

    for launch, arrival in zip(launches, arrived_of, strict=True):
        env.process(send(launch, arrival))
    env.run()
    return arrived_of, network.link_bytes.tolist()


@given(traffic())
def test_messages_launched_together_arrive_as_those_sent_one_by_one(case):
    topology, launches = case
    single = network_on(topology)
    numbers = [messages_of(launch) for launch in launches]

    messages = [
        (sent_ps, *pairs[number], sizes[number])
        for (sent_ps, pairs, sizes, _), some in zip(launches, numbers, strict=True)
        for number in some
    ]
    came = iter(arrivals(single, messages))
    expected = [{number: next(came) for number in some} for some in numbers], single.link_bytes.tolist()
    assert together(topology, launches, accelerated=True) == expected
    assert together(topology, launches, accelerated=False) == expected
