"""Thread blocks: what a file says of them, of channels and its protocol counts, or is named as left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import Algorithm, Job, NotSupportedError, Software, simulate, simulate_jobs
from collectives.formats.msccl_program import from_msccl_xml
from ddp import simulate_step
from sim import Topology
from tests.collectives.formats.msccl_files import block, file_of, fused_ring, step
from tests.ddp.given import profile_of

CHUNK = 1 << 20
LATENCY_PS = 10**9  # longer than any of NCCL's hops, so that protocols add none
PAYLOAD = {"Simple": 1, "LL": 2}


def network(num_ranks: int, bandwidth: str = "10000GB/s") -> Topology:
    return Topology.switch(num_ranks=num_ranks, bandwidth=bandwidth, latency="1ms")


def all_pairs(num_ranks: int, channels: int, protocol: str = "Simple") -> Algorithm:
    """An all-gather in which a thread block for each peer and channel sends and receives a chunk."""

    def exchange(rank, peer, channel):
        mine, other = (f"o{owner * channels + channel}" for owner in (rank, peer))
        return [step("s", mine, mine), step("r", other, other)]

    gpus = []
    for rank in range(num_ranks):
        others = [(peer, channel) for peer in range(num_ranks) if peer != rank for channel in range(channels)]
        blocks = enumerate(others)
        gpus.append([block(n, peer, peer, exchange(rank, peer, at), at) for n, (peer, at) in blocks])
    text = file_of(gpus, coll="allgather", chunks=num_ranks * channels)
    return from_msccl_xml(text.replace('proto="Simple"', f'proto="{protocol}"'))


def time_ps(algorithm: Algorithm, nbytes: int, bandwidth: str = "10000GB/s", **counted) -> int:
    return simulate(algorithm, nbytes=nbytes, topology=network(4, bandwidth), **counted).time_ps


@given(channels=st.integers(1, 4), protocol=st.sampled_from(sorted(PAYLOAD)), rate=st.sampled_from([1, 2, 4]))
def test_a_thread_block_moves_what_it_sends_and_receives_at_its_own_rate(channels, protocol, rate):
    algorithm = all_pairs(4, channels, protocol)

    found = time_ps(algorithm, 4 * channels * CHUNK, block_bandwidth=f"{rate}GB/s")

    assert found - 2 * LATENCY_PS == 2 * CHUNK * 1000 * PAYLOAD[protocol] // rate


def test_what_is_sent_on_in_the_step_in_which_it_is_received_counts_once():
    found = time_ps(from_msccl_xml(fused_ring(4)), 4 * CHUNK, block_bandwidth="1GB/s")

    first = 1  # what a thread block sends besides what it receives
    assert found == 6 * 2 * LATENCY_PS + (6 + first) * CHUNK * 1000


def test_a_result_names_what_is_counted_and_what_is_left_out():
    algorithm = all_pairs(4, 2, "LL")

    alone = simulate(algorithm, nbytes=CHUNK, topology=network(4))
    counted = simulate(algorithm, nbytes=CHUNK, topology=network(4), transport_model="nccl")
    taken = simulate_step(
        profile_of([CHUNK], [1.0]), topology=network(4), algorithm=from_msccl_xml(fused_ring(4))
    )

    assert "left out: channels, thread blocks and protocol LL" in alone.thread_blocks
    assert (
        "2 channels, 24 thread blocks of 10 GB/s each, protocol LL; left out: that" in counted.thread_blocks
    )
    assert "1 channel, 4 thread blocks; left out" in taken.thread_blocks


def test_two_jobs_with_thread_blocks_on_one_network_are_refused():
    jobs = [Job(all_pairs(4, 1), CHUNK, software=Software(transport_model="nccl"))] * 2

    with pytest.raises(NotSupportedError, match=r"one at most by FILE\.xml"):
        simulate_jobs(jobs, topology=network(4))
