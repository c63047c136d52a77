import pytest

from collectives import NotSupportedError, resolve_algorithm, simulate, verify
from sim import Topology


@pytest.mark.parametrize("world_size", [3, 5, 6, 7, 12, 31, 33])
def test_other_world_sizes_fold_in_and_out(world_size):
    for order in ("far", "near"):
        algorithm = f"halving_doubling:order={order}"
        below = 1 << world_size.bit_length() - 1

        folded, core = verify(algorithm, world_size), verify(algorithm, below)

        assert folded.num_steps == core.num_steps + 2
        assert folded.max_bytes_sent_fraction == core.max_bytes_sent_fraction + 1
    for collective in ("reduce_scatter", "all_gather"):
        folded = verify("halving_doubling", world_size, collective=collective)

        assert folded.num_steps == verify("halving_doubling", below, collective=collective).num_steps + 2
        with pytest.raises(NotSupportedError, match=r"is for powers of two, got \d+ ranks; use order=far"):
            verify("halving_doubling:order=near", world_size, collective=collective)


def test_the_orders_differ_in_who_exchanges_the_largest_messages():
    def first_peers(order):
        algorithm = resolve_algorithm(f"halving_doubling:order={order}")
        return [next(algorithm.steps(rank, 8))[0].peer for rank in range(8)]

    assert first_peers("far") == [4, 5, 6, 7, 0, 1, 2, 3]
    assert first_peers("near") == [1, 0, 3, 2, 5, 4, 7, 6]


@pytest.mark.parametrize(("world_size", "far", "near"), [(8, 5.25, 3.0), (32, 21.3125, 5.0)])
def test_on_a_ring_the_near_order_keeps_the_large_messages_close(world_size, far, near):
    topology = Topology.ring(num_ranks=world_size, bandwidth="1GB/s", latency="0s")

    seconds = {
        order: simulate(f"halving_doubling:order={order}", nbytes=2**20, topology=topology).seconds
        for order in ("far", "near")
    }

    assert seconds["near"] * 1e9 / 2**20 == pytest.approx(near)
    assert seconds["far"] * 1e9 / 2**20 == pytest.approx(far)
