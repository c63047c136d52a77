from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError, UnknownAlgorithmError, resolve_algorithm, verify
from collectives.catalogue.values import read_value

WHOLE = st.integers(-(10**20) + 1, 10**20 - 1)


@given(st.one_of(WHOLE, st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_python_writes_is_read_as_it_was(value: object) -> None:
    assert read_value(str(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("far", "far"), ("'far'", "far"), ("2x4", "2x4"), ("1_000", 1000), ("1e3", 1000.0), ("--1", "--1")],
)
def test_words_are_themselves(text: str, value: object) -> None:
    assert read_value(text) == value


@pytest.mark.parametrize("text", ["-" * 20_000 + "1", "9" * 5000, "9" * 21])
def test_a_value_that_none_can_be_is_refused(text: str) -> None:
    with pytest.raises(UnknownAlgorithmError, match="at most"):
        read_value(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("double_binary_tree:segments=0", "segments must be from 1 to 4096, got 0"),
        ("chain:segments=100000", "segments must be from 1 to 4096, got 100000"),
        ("chain:segments=1.5", "got 1.5"),
        ("chain:segments=True", "got True"),
        ("bucket:colors=65", "colors must be from 1 to 64"),
        ("hierarchical:ranks_per_node=0", "ranks_per_node must be from 1 to 1048576"),
        ("halving_doubling:order=up", "order must be one of far, near, got 'up'"),
        ("gloo_ring:segments=1", "segments must be from 2"),
        ("ring:channels=65", "channels must be from 1 to 64"),
    ],
)
def test_a_parameter_outside_its_range_is_refused_with_the_range(text: str, message: str) -> None:
    with pytest.raises(NotSupportedError, match=message):
        resolve_algorithm(text)


@pytest.mark.parametrize("root", ["4", "-1", "x", "0.5"])
def test_a_root_that_is_no_rank_is_refused(root: str) -> None:
    tree = resolve_algorithm(f"tree:root={root}", "broadcast")

    with pytest.raises(NotSupportedError, match="root must be a rank from 0 to 3"):
        list(tree.steps(0, 4))
    with pytest.raises(NotSupportedError, match="root must be a rank from 0 to 3"):
        tree.num_chunks(4)
    assert verify("tree", 4, collective="broadcast", root=3).num_steps == 2
