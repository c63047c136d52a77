from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectives import (
    AlgorithmFileError,
    UnknownAlgorithmError,
    algorithm,
    algorithm_names,
    resolve_algorithm,
    verify,
)
from collectives.catalogue.resolve import resolve_for_every_collective
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


def test_a_name_means_the_shipped_algorithm_of_that_collective() -> None:
    assert resolve_algorithm("ring", "all_gather").collective == "all_gather"
    assert {"naive", "ring", "tree"} <= set(algorithm_names())


def test_parameters_follow_the_name() -> None:
    tree = resolve_algorithm("tree:root=2", "broadcast")

    assert dict(tree.parameters) == {"root": 2}
    assert str(tree) == "tree:root=2"


def test_a_name_means_one_algorithm_for_each_collective_that_it_is_shipped_for() -> None:
    found = resolve_for_every_collective("ring")

    assert {own.name for own in found} == {"ring"}
    assert {own.collective for own in found} >= {"all_reduce", "reduce_scatter", "all_gather"}


def test_parameters_choose_among_those_algorithms_the_ones_that_have_them() -> None:
    found = resolve_for_every_collective("ring:shift=1")

    assert "all_reduce" not in {own.collective for own in found}
    assert all(dict(own.parameters) == {"shift": 1} for own in found)
    with pytest.raises(UnknownAlgorithmError, match="has no parameter 'rot'"):
        resolve_for_every_collective("ring:rot=1")


def test_a_function_in_a_file_means_one_algorithm(file: Path) -> None:
    (found,) = resolve_for_every_collective(f"{file}:plain")

    assert (found.name, found.collective) == ("plain", "all_reduce")


def test_a_name_unknown_for_every_collective_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownAlgorithmError, match="unknown algorithm 'rign'; did you mean 'ring'"):
        resolve_for_every_collective("rign")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownAlgorithmError, match="did you mean 'ring'"):
        resolve_algorithm("rign")


def test_an_unknown_collective_is_answered_with_those_known() -> None:
    with pytest.raises(UnknownAlgorithmError, match="known: all_reduce"):
        resolve_algorithm("ring", "all_to_some")


def test_an_unknown_parameter_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownAlgorithmError, match="has no parameter 'rot'; it has: root"):
        resolve_algorithm("tree:rot=2", "broadcast")


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(UnknownAlgorithmError, match="expected NAME:key=value"):
        resolve_algorithm("tree:root", "broadcast")


def test_a_function_in_a_file_is_loaded_with_what_it_declares(file: Path) -> None:
    assert resolve_algorithm(f"{file}:plain").num_chunks(4) == 4
    assert resolve_algorithm(f"{file}:declared:root=3").num_chunks(4) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{dir}/absent.py:ring", "no such file"),
        ("{dir}/mine.py:plian", "did you mean 'plain'"),
        ("{dir}/broken.py:ring", "SyntaxError on import"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(file: Path, text: str, message: str) -> None:
    (file.parent / "broken.py").write_text("def ring(")

    with pytest.raises(AlgorithmFileError, match=message):
        resolve_algorithm(text.format(dir=file.parent))


def test_what_is_no_program_is_refused() -> None:
    not_a_program: Any = 3
    with pytest.raises(TypeError, match="a name or a program, got int"):
        resolve_algorithm(not_a_program)


def test_an_algorithm_is_taken_as_it_is() -> None:
    @algorithm(num_chunks=lambda world_size: 2 * world_size)
    def mine(rank: int, world_size: int) -> Any:
        yield ()

    assert resolve_algorithm(mine) is mine
    assert mine.num_chunks(3) == 6


def test_a_path_to_msccl_xml_is_an_algorithm_wherever_a_name_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.xml"
    path.write_text(to_msccl_xml(resolve_algorithm("ring", "all_gather"), 3), encoding="utf-8")

    one, several = resolve_algorithm(str(path)), resolve_for_every_collective(str(path))

    assert (one.name, one.collective) == ("ring", "all_gather")
    assert [own.collective for own in several] == ["all_gather"]
    assert verify(one, 3).num_steps == 2
