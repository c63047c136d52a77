from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import Algorithm, Recv, Send, resolve_algorithm, verify
from tests.collectives.sends import sends

COLLECTIVES = ["all_gather", "reduce_scatter"]


def pat(collective: str, aggregation: int | None = None) -> Algorithm:
    return resolve_algorithm("pat", collective).with_parameters(aggregation=aggregation)


def parts_by_distance(algorithm: Algorithm, world_size: int) -> Counter[int]:
    """Return how many parts rank 0 sends over each distance on a ring of the ranks."""
    parts = Counter()
    for _, _, send in sends(algorithm, world_size, [0]):
        parts[min(send.peer, world_size - send.peer)] += send.num_chunks
    return parts


@pytest.mark.parametrize("collective", COLLECTIVES)
@given(world_size=st.integers(1, 40), level=st.integers(0, 7))
def test_no_message_carries_more_parts_than_may_be_aggregated(collective, world_size, level):
    limited = pat(collective, 1 << level)

    proof = verify(limited, world_size)

    sizes = [send.num_chunks for _, _, send in sends(limited, world_size, [0])]
    assert all(size <= 1 << level for size in sizes)
    assert len(sizes) == proof.num_steps
    assert (proof.cost_declared, proof.array_form) == (True, True)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("world_size", [8, 64, 256])
@pytest.mark.parametrize("aggregation", [None, 1, 4])
def test_each_doubling_of_the_distance_halves_what_travels_over_it(collective, world_size, aggregation):
    parts = parts_by_distance(pat(collective, aggregation), world_size)

    assert parts == {1 << level: world_size >> level + 1 for level in range(world_size.bit_length() - 1)}


@given(world_size=st.integers(2, 64))
def test_bruck_sends_the_same_bytes_no_less_far(world_size):
    near, far = (
        parts_by_distance(resolve_algorithm(name, "all_gather"), world_size) for name in ("pat", "bruck")
    )

    assert near.total() == far.total() == world_size - 1
    assert sum(d * n for d, n in near.items()) <= sum(d * n for d, n in far.items())


@given(world_size=st.integers(2, 64), level=st.integers(0, 5))
def test_few_messages_wait_to_be_sent_on_at_any_time(world_size, level):
    steps = list(pat("all_gather", 1 << level).steps(0, world_size))
    arrived = {}
    last_sent = {}
    for number, step in enumerate(steps):
        for operation in step:
            if isinstance(operation, Recv):
                arrived[range(operation.chunk, operation.chunk + operation.num_chunks)] = number
            elif isinstance(operation, Send):
                sent = range(operation.chunk, operation.chunk + operation.num_chunks)
                last_sent |= dict.fromkeys(sent, number)

    lasts = {parts: max(last_sent.get(part, -1) for part in parts) for parts in arrived}
    for number in range(len(steps)):
        waiting = sum(arrived[parts] < number <= lasts[parts] for parts in arrived)
        assert waiting <= (world_size - 1).bit_length()
