"""Proofs of programs in users' files, for every size."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectives import resolve_algorithm
from testbed.studies.proofs import scope_beyond

pytest.importorskip("z3", reason="proofs for every size need z3")

OWN = """
from collectives import Recv, Send, algorithm

@algorithm(collective="all_gather")
def mine(rank, world_size):
    step = []
    for distance in range(1, world_size):
        source = (rank - distance) % world_size
        step += Send((rank + distance) % world_size, rank), Recv(source, source)
    yield tuple(step)
"""


def test_a_program_of_a_file_is_proved_for_every_size(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    scope = scope_beyond(resolve_algorithm(f"{file}:mine"))

    assert scope is not None
    assert scope.sizes == "every size"
