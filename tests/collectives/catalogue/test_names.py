"""Names of algorithms, their parameters, and what they mean."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import CollectiveError, NotSupportedError, resolve_algorithm, verify
from collectives.catalogue.native import native_program, num_segments
from collectives.catalogue.resolve import resolve_for_every_collective
from collectives.catalogue.selectors import DEFAULTS, Auto, fixed, parse_auto
from collectives.catalogue.values import read_value
from collectives.formats.msccl_xml import to_msccl_xml

PROGRAM = """
from collectives import Send, Recv, RecvReduce, algorithm

def plain(rank, world_size):
    yield Send((rank + 1) % world_size, 0), RecvReduce((rank - 1) % world_size, 0)

@algorithm(num_chunks=1)
def declared(rank, world_size, *, root=0):
    yield ()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM)
    return path


def test_a_name_means_one_algorithm_for_each_collective_that_it_is_shipped_for():
    found = resolve_for_every_collective("ring")

    assert {own.name for own in found} == {"ring"}
    assert {own.collective for own in found} >= {"all_reduce", "reduce_scatter", "all_gather"}


def test_parameters_choose_among_those_algorithms_the_ones_that_have_them():
    found = resolve_for_every_collective("ring:shift=1")

    assert "all_reduce" not in {own.collective for own in found}
    assert all(dict(own.parameters) == {"shift": 1} for own in found)


def test_a_function_in_a_file_means_one_algorithm_with_what_it_declares(file):
    (found,) = resolve_for_every_collective(f"{file}:plain")

    assert (found.name, found.collective, found.num_chunks(4)) == ("plain", "all_reduce", 4)
    assert resolve_algorithm(f"{file}:declared:root=3").num_chunks(4) == 1


ANY: Any = object()
BRUCK = resolve_algorithm("bruck", "all_gather")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: resolve_algorithm("rign"), "Unknown.*did you mean 'ring'"),
        (lambda: resolve_for_every_collective("rign"), "Unknown.* 'rign'; did you mean 'ring'"),
        (lambda: resolve_algorithm("ring", "all_to_some"), "Unknown.*known: all_reduce"),
        (lambda: resolve_algorithm("tree:rot=2", "broadcast"), "Unknown.* 'rot'; it has: root"),
        (lambda: resolve_algorithm("tree:root", "broadcast"), "Unknown.*expected NAME:key=value"),
        (lambda: resolve_for_every_collective("ring:rot=1"), "Unknown.*no parameter 'rot'"),
        (lambda: resolve_algorithm("absent.py:ring"), "AlgorithmFileError: .*no such file"),
        (lambda: resolve_algorithm("mine.py:plian"), "AlgorithmFileError: .*did you mean 'plain'"),
        (lambda: resolve_algorithm("broken.py:ring"), "AlgorithmFileError: .*SyntaxError on import"),
        (lambda: resolve_algorithm("nowhere.json"), r"AlgorithmFileError: nowhere\.json"),
        (lambda: resolve_algorithm(ANY), "TypeError: .*a name or a program, got object"),
        (lambda: read_value("-" * 20_000 + "1"), "Unknown.*at most"),
        (lambda: read_value("9" * 21), "Unknown.*at most"),
        (lambda: read_value("9" * 5000), "Unknown.*at most"),
        (lambda: parse_auto("auto:speed=1"), "Unknown.*expected auto, auto:table=FILE"),
        (lambda: fixed({"all_gather": "tree"}), "Unknown.*algorithm 'tree' for all_gather"),
        (lambda: fixed({"all_gathr": "ring"}), "Unknown.*unknown collective 'all_gathr'"),
        (lambda: fixed({"all_gather": "native"}), "Unknown.* 'native' for all_gather"),
        (lambda: fixed(BRUCK), "UnknownAlgorithmError: bruck is an algorithm for all_gather, not"),
        (lambda: native_program("scan", 4, 1), "NotSupportedError: .*Gloo has no scan"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_answered_with_what_there_is(ask, said, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    (file.parent / "broken.py").write_text("def ring(")

    with pytest.raises((CollectiveError, TypeError)) as raised:
        ask()
    assert re.match(said, f"{raised.type.__name__}: {raised.value}", re.DOTALL)


def test_a_path_to_msccl_xml_is_an_algorithm_wherever_a_name_is(tmp_path):
    path = tmp_path / "mine.xml"
    path.write_text(to_msccl_xml(resolve_algorithm("ring", "all_gather"), 3), encoding="utf-8")

    one, several = resolve_algorithm(str(path)), resolve_for_every_collective(str(path))

    assert (one.name, one.collective) == ("ring", "all_gather")
    assert [own.collective for own in several] == ["all_gather"]
    assert verify(one, 3).num_steps == 2


WHOLE = st.integers(-(10**20) + 1, 10**20 - 1)


@given(st.one_of(WHOLE, st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_python_writes_is_read_as_it_was(value):
    assert read_value(str(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("far", "far"), ("'far'", "far"), ("2x4", "2x4"), ("1_000", 1000), ("1e3", 1000.0), ("--1", "--1")],
)
def test_words_are_themselves(text, value):
    assert read_value(text) == value


@pytest.mark.parametrize("root", ["4", "-1", "x", "0.5"])
def test_a_root_that_is_no_rank_is_refused(root):
    tree = resolve_algorithm(f"tree:root={root}", "broadcast")

    with pytest.raises(NotSupportedError, match="root must be a rank from 0 to 3"):
        list(tree.steps(0, 4))
    with pytest.raises(NotSupportedError, match="root must be a rank from 0 to 3"):
        tree.num_chunks(4)
    assert verify("tree", 4, collective="broadcast", root=3).num_steps == 2


def test_auto_takes_a_table_or_a_reduction_bandwidth():
    assert parse_auto("ring") is None
    assert parse_auto({"all_gather": "auto"}) is None
    assert parse_auto("auto") == Auto()
    assert parse_auto("auto:table=a/b.json") == Auto(table=Path("a/b.json"))
    assert parse_auto("auto:reduction_bandwidth=50GB/s") == Auto(reduction_bandwidth="50GB/s")


MIB = 1 << 20


@pytest.mark.parametrize(
    ("num_ranks", "nbytes", "itemsize", "segments"),
    [
        (4, 0, 4, 2), (4, 4, 4, 2), (4, 8 * MIB, 4, 2), (4, 8 * MIB + 4, 4, 3), (4, 16 * MIB, 4, 4),
        (3, 10, 1, 2),
    ],
)  # fmt: skip
def test_a_segment_has_at_most_a_mebibyte_and_a_chunk_at_least_two(num_ranks, nbytes, itemsize, segments):
    assert num_segments(num_ranks, nbytes, itemsize) == segments


def test_a_name_is_that_of_all_reduce_and_a_mapping_names_others_too():
    mapping = {"all_gather": "bruck", "broadcast": "chain:segments=2"}

    named, mapped = fixed("tree").algorithms, fixed(mapping).algorithms

    assert {name: str(own) for name, own in named.items()} == {**DEFAULTS, "all_reduce": "tree"}
    assert {name: str(own) for name, own in mapped.items()} == {**DEFAULTS, **mapping}
