"""Programs made for tori."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collectives import NotSupportedError, resolve_algorithm, simulate, verify
from collectives.algorithms.shared.butterfly import follow
from collectives.algorithms.swing import swing_peer
from collectives.program import Recv, RecvReduce, Send
from sim import Topology
from tests.collectives import reference

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("world_size", [*range(1, 30), 48, 63, 64, 65])
def test_swing_meets_the_bound_in_bytes_in_the_fewest_steps_for_any_world_size(
    collective: str, world_size: int
) -> None:
    proof = verify("swing", world_size, collective=collective)

    those_that_pair_up = max(world_size - world_size % 2, 1)
    num_phases = 2 if collective == "all_reduce" else 1
    assert proof.num_steps == num_phases * (those_that_pair_up - 1).bit_length()
    assert proof.max_bytes_sent_fraction == proof.min_bytes_sent_fraction
    assert proof.array_form


def test_peers_swing_to_and_fro_as_in_the_paper() -> None:
    steps = list(resolve_algorithm("swing").steps(0, 16))

    peers = [operation.peer for step in steps for operation in step if isinstance(operation, Send)]
    assert peers == [1, 16 - 1, 3, 16 - 5, 16 - 5, 3, 16 - 1, 1]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_for_a_power_of_two_each_step_is_one_message_each_way(collective: str) -> None:
    for step in resolve_algorithm("swing", collective).steps(5, 32):
        assert sum(isinstance(operation, Send) for operation in step) <= 1
        assert sum(isinstance(operation, (Recv, RecvReduce)) for operation in step) <= 1


@pytest.mark.parametrize("world_size", [2, 6, 8, 10, 24, 50, 64])
def test_every_rank_parts_once_with_every_chunk_but_its_own(world_size: int) -> None:
    num_steps = (world_size - 1).bit_length()
    ranks = np.arange(world_size)
    peers = np.array([swing_peer(ranks, step, world_size) for step in range(num_steps)])  # type: ignore[arg-type]

    butterfly = follow(peers)

    for rank in range(world_size):
        num_parted = np.bincount(butterfly.parting[rank], minlength=num_steps + 1)
        assert num_parted[:num_steps].sum() == world_size - 1
        assert num_parted[num_steps] == 1


def test_of_an_odd_number_the_last_rank_exchanges_with_each_other_one_once() -> None:
    steps = list(resolve_algorithm("swing", "reduce_scatter").steps(10, 11))

    sends = [operation for step in steps for operation in step if isinstance(operation, Send)]
    receives = [operation for step in steps for operation in step if isinstance(operation, RecvReduce)]
    assert sorted(send.peer for send in sends) == sorted(receive.peer for receive in receives)
    assert sorted(send.peer for send in sends) == list(range(10))
    assert {receive.chunk for receive in receives} == {10}


@pytest.mark.parametrize("world_size", [7, 12, 16])
def test_a_run_by_the_independent_rules_reduces_everything_everywhere(world_size: int) -> None:
    programs = [list(resolve_algorithm("swing").steps(rank, world_size)) for rank in range(world_size)]

    assert reference.fulfils(programs, reference.Setting("all_reduce", world_size, world_size))


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("sides", [(4, 4), (2, 8), (6, 4), (2, 4, 8), (10, 6), (1, 7), (2, 2, 2, 2)])
def test_every_torus_of_even_sides_is_proved_at_the_bound_in_bytes(
    collective: str, sides: tuple[int, ...]
) -> None:
    shape = "x".join(map(str, sides))

    proof = verify(f"swing:shape={shape}", math.prod(sides), collective=collective)

    num_phases = 2 if collective == "all_reduce" else 1
    assert proof.num_steps == num_phases * sum(
        (side - side % 2 - 1).bit_length() for side in sides if side > 1
    )
    assert proof.max_bytes_sent_fraction == proof.min_bytes_sent_fraction
    assert proof.array_form


def test_on_a_torus_the_dimensions_take_turns() -> None:
    steps = list(resolve_algorithm("swing:shape=8x4", "reduce_scatter").steps(0, 32))

    assert [operation.peer for step in steps for operation in step if isinstance(operation, Send)] == [
        1,
        1 * 8,
        7,
        3 * 8,
        3,
    ]


def test_on_a_torus_bytes_cross_fewer_links_than_if_its_ranks_were_one_ring() -> None:
    def links(shape: str) -> int:
        total = 0
        for rank in range(64):
            for step in resolve_algorithm(f"swing:shape={shape}").steps(rank, 64):
                for operation in step:
                    if isinstance(operation, Send):
                        for stride in (1, 8):
                            apart = (operation.peer // stride - rank // stride) % 8
                            total += operation.num_chunks * min(apart, 8 - apart)
        return total

    assert links("8x8") < 0.75 * links("64")


def test_an_odd_side_of_a_torus_is_refused_with_what_to_use() -> None:
    with pytest.raises(NotSupportedError, match=r"shape '3x4' has an odd side, .* use no shape, or bucket"):
        verify("swing:shape=3x4", 12)


@pytest.mark.parametrize("shape", ["4x5", "x", "15"])
def test_another_shape_is_refused_with_one_that_fits(shape: str) -> None:
    with pytest.raises(NotSupportedError, match=r"swing: shape .* such as 4x4, or no shape for a ring"):
        verify(f"swing:shape={shape}", 16)


@pytest.mark.parametrize(("world_size", "buffers"), [(8, 2.0), (16, 2.375), (32, 2.75), (64, 3.09375)])
def test_on_a_ring_of_links_it_costs_the_load_of_its_busiest_links(world_size: int, buffers: float) -> None:
    """The sum over steps of the largest load of a link, counted apart from this code."""
    topology = Topology.ring(num_ranks=world_size, bandwidth="1GB/s", latency="0s")

    run = simulate("swing", nbytes=world_size * 10**6, topology=topology)

    assert run.seconds == pytest.approx(buffers * world_size * 1e-3, rel=1e-12)


SHAPES = [(8,), (4, 4), (1, 7), (3, 5), (2, 4, 8), (3, 3, 3), (3, 5, 2), (2, 2, 2, 2)]


@pytest.mark.parametrize("colors", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("sides", SHAPES)
def test_every_torus_is_proved_at_the_bound_in_bytes(sides: tuple[int, ...], colors: int) -> None:
    shape = "x".join(map(str, sides))

    proof = verify(f"bucket:shape={shape},colors={colors}", math.prod(sides))

    assert proof.num_steps == 2 * sum(side - 1 for side in sides)
    assert math.isclose(proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction)


@pytest.mark.parametrize(("world_size", "sides"), [(1, (1, 1)), (7, (1, 7)), (12, (3, 4)), (64, (8, 8))])
def test_the_default_is_the_most_square_torus(world_size: int, sides: tuple[int, int]) -> None:
    assert verify("bucket", world_size).num_steps == 2 * sum(side - 1 for side in sides)


def test_all_messages_go_to_neighbours_and_colors_use_all_directions_at_once() -> None:
    steps = list(resolve_algorithm("bucket:shape=4x4,colors=4").steps(5, 16))

    for step in steps:
        assert {operation.peer for operation in step if isinstance(operation, Send)} == {6, 9, 4, 1}


def test_on_a_ring_of_links_two_colors_take_half_the_time_of_one() -> None:
    topology = Topology.ring(num_ranks=8, bandwidth="1GB/s", latency="0s")

    def seconds(colors: int) -> float:
        return simulate(f"bucket:shape=8,colors={colors}", nbytes=16 * 10**6, topology=topology).seconds

    assert seconds(1) == simulate("ring", nbytes=16 * 10**6, topology=topology).seconds
    assert seconds(2) == seconds(1) / 2


@pytest.mark.parametrize("shape", ["4x5", "x", "abc", "-4x-4", "4x4x", "15"])
def test_other_shapes_are_refused_with_one_that_fits(shape: str) -> None:
    with pytest.raises(
        NotSupportedError, match="is no torus of 16 ranks; expected sides with that product, such as 4x4"
    ):
        verify(f"bucket:shape={shape}", 16)


def test_no_colors_are_refused() -> None:
    with pytest.raises(NotSupportedError, match="colors must be from 1 to 64, got 0"):
        verify("bucket:colors=0", 16)
