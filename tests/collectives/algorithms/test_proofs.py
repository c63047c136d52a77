"""Proofs of every shipped algorithm whatever its parameters, closed forms, and refusals."""

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError, algorithm_names, resolve_algorithm, verify
from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS

MOVES_CHUNKS = {"pat", "swing"}
INNER = sorted({*algorithm_names("reduce_scatter")} & {*algorithm_names("all_gather")} - MOVES_CHUNKS)
OUTER = [name for name in algorithm_names() if name != "hierarchical"]
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "segments": st.integers(2, 8), "aggregation": st.integers(0, 7).map(lambda level: 1 << level),
    "colors": st.integers(1, 6), "ranks_per_node": st.integers(1, 9), "inner": st.sampled_from(INNER),
    "outer": st.sampled_from(OUTER),
}  # fmt: skip
LARGEST = {
    "hierarchical": 64,
    "bine": 40,
    "pat": 40,
    **dict.fromkeys([own.name for own in NATIVE_ALGORITHMS], 9),
}
"""Ranks of those whose proofs take less time than others', or more."""

CHUNKS = {
    "chain": lambda world_size, segments: segments,
    "direct": lambda world_size, segments: world_size * segments,
    "double_binary_tree": lambda world_size, segments: 2 * segments,
}
SHIPPED = [
    pytest.param(own, id=f"{own.collective}-{own.name}")
    for own in (*ALGORITHMS, *NATIVE_ALGORITHMS)
    if {*PARAMETERS, "root"} & {*own.parameter_names()} or own in NATIVE_ALGORITHMS
]


@pytest.mark.parametrize("shipped", SHIPPED)
@settings(max_examples=max(4, settings.default.max_examples // 4))
@given(data=st.data())
def test_it_is_proved_for_any_world_size_parameters_and_root(shipped, data):
    world_size = data.draw(st.integers(1, LARGEST.get(shipped.name, 20)), "world_size")
    chosen = {
        name: data.draw(PARAMETERS[name], name) for name in shipped.parameter_names() if name in PARAMETERS
    }
    text = f"{shipped.name}:{','.join(f'{name}={value}' for name, value in chosen.items())}".rstrip(":")
    bound = resolve_algorithm(text, shipped.collective)

    proof = verify(bound, world_size, root=data.draw(st.integers(0, world_size - 1), "root"))

    if shipped in ALGORITHMS:
        assert proof.array_form
        assert proof.cost_declared or chosen.get("inner") == "halving_doubling"
    if shipped.name in CHUNKS and "segments" in chosen:
        assert proof.num_chunks == CHUNKS[shipped.name](world_size, chosen["segments"])


def doublings(world_size: int) -> int:
    return (world_size - 1).bit_length()


def swings(world_size: int) -> int:
    """Of an odd number one rank stays apart."""
    return doublings(max(world_size - world_size % 2, 1))


def most_square(world_size: int) -> int:
    side = next(side for side in range(math.isqrt(world_size), 0, -1) if world_size % side == 0)
    return 2 * (side - 1 + world_size // side - 1)


@pytest.mark.parametrize(
    ("name", "collective", "num_steps"),
    [
        ("ring", "all_reduce", lambda p: 2 * (p - 1)), ("swing", "all_reduce", lambda p: 2 * swings(p)),
        ("swing", "reduce_scatter", swings), ("swing", "all_gather", swings),
        ("bucket", "all_reduce", most_square), ("pat", "reduce_scatter", doublings),
        ("pat", "all_gather", doublings), ("bruck", "all_gather", doublings),
    ],
)  # fmt: skip
@given(world_size=st.integers(1, 33))
@example(world_size=64)
@example(world_size=65)
def test_it_takes_the_fewest_bytes_and_the_steps_of_its_paper(name, collective, num_steps, world_size):
    proof = verify(name, world_size, collective=collective)

    assert proof.num_steps == num_steps(world_size)
    assert math.isclose(proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction)


@pytest.mark.parametrize("collective", ["broadcast", "reduce", "gather", "scatter"])
@pytest.mark.parametrize("name", ["tree", "bine"])
@given(world_size=st.integers(1, 33))
def test_a_tree_has_a_level_for_each_doubling(name, collective, world_size):
    assert verify(name, world_size, collective=collective).num_steps == doublings(world_size)


PHASES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
REGULAR = [
    *(
        (f"halving_doubling:order={order}", collective, 1 << level, level * phases)
        for order in ("far", "near")
        for collective, phases in PHASES.items()
        for level in (0, 1, 3, 6)
    ),
    *(
        (f"swing:shape={shape}", collective, size, num_steps * phases)
        for shape, size, num_steps in [
            ("4x4", 16, 4), ("2x8", 16, 4), ("6x4", 24, 5), ("2x4x8", 64, 6), ("10x6", 60, 7), ("1x7", 7, 3),
            ("2x2x2x2", 16, 4),
        ]
        for collective, phases in PHASES.items()
    ),
    *(
        (f"bucket:shape={shape},colors={colors}", "all_reduce", size, 2 * num_steps)
        for shape, colors, size, num_steps in [
            ("8", 1, 8, 7), ("4x4", 2, 16, 6), ("1x7", 3, 7, 6), ("3x5", 4, 15, 6), ("2x4x8", 6, 64, 11),
            ("3x3x3", 1, 27, 6), ("3x5x2", 6, 30, 7), ("2x2x2x2", 4, 16, 4),
        ]
    ),
]  # fmt: skip
"""Programs for powers of two and for tori, and how many steps they take."""


@pytest.mark.parametrize("group", ["halving_doubling", "swing", "bucket"])
def test_on_powers_of_two_and_on_tori_it_takes_the_fewest_bytes(group):
    for text, collective, world_size, num_steps in REGULAR:
        if text.startswith(group):
            proof = verify(text, world_size, collective=collective)

            assert proof.num_steps == num_steps, text
            assert math.isclose(proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction), text
            assert proof.array_form, text


NO_TORUS = "is no torus of 16 ranks; expected sides with that product, such as 4x4"
NO_POWER = "pat: aggregation must be a power of two, such as 8"


@pytest.mark.parametrize(
    ("text", "ranks", "said"),
    [
        ("double_binary_tree:segments=0", 4, "segments must be from 1 to 4096, got 0"),
        ("chain:segments=100000", 4, "segments must be from 1 to 4096, got 100000"),
        ("chain:segments=1.5", 4, "got 1.5"),
        ("chain:segments=True", 4, "got True"),
        ("gloo_ring:segments=1", 4, "segments must be from 2 to 1048576, got 1"),
        ("ring:channels=65", 4, "channels must be from 1 to 64"),
        ("halving_doubling:order=up", 4, "order must be one of far, near, got 'up'"),
        ("bucket:colors=0", 16, "colors must be from 1 to 64, got 0"),
        ("bucket:colors=65", 16, "colors must be from 1 to 64"),
        *((f"bucket:shape={shape}", 16, NO_TORUS) for shape in ("4x5", "x", "abc", "-4x-4", "4x4x", "15")),
        *(
            (f"swing:shape={shape}", 16, "swing: shape .* such as 4x4, or no shape for a ring")
            for shape in ("4x5", "x", "15")
        ),
        ("swing:shape=3x4", 12, "shape '3x4' has an odd side, .* use no shape, or bucket"),
        *((f"pat:aggregation={limit}", 4, NO_POWER) for limit in ("0", "-2", "3", "12", "many", "2.0")),
        ("hierarchical:ranks_per_node=0", 8, "ranks_per_node must be from 1 to 1048576, got 0"),
        (
            "hierarchical:ranks_per_node=8,inner=swing",
            19,
            "hierarchical on 3 nodes of 8, the last of 3: swing .* embed ring instead",
        ),
        *(
            (
                f"hierarchical:ranks_per_node=4,inner={inner}",
                8,
                f"on 2 nodes of 4: {inner} for reduce_scatter moves chunks about; embed ring instead",
            )
            for inner in sorted(MOVES_CHUNKS)
        ),
    ],
)
def test_parameters_that_cannot_be_are_refused_with_what_can(text, ranks, said):
    with pytest.raises(NotSupportedError, match=said):
        verify(text, ranks, collective="all_gather" if text.startswith("pat") else "all_reduce")
