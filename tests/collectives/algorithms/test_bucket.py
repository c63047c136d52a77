from __future__ import annotations

import math

import pytest

from collectives import NotSupportedError, resolve_algorithm, simulate, verify
from collectives.program import Send
from sim import Topology

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
