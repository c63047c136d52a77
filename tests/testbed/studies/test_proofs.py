"""Proofs that `testbed verify` asks for: of programs in users' files, and of many on all cores."""

import pytest

from collectives import resolve_algorithm
from testbed.studies import proofs
from testbed.tasks import spread

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


def test_a_program_of_a_file_is_proved_for_every_size(tmp_path):
    pytest.importorskip("z3", reason="proofs for every size need z3")
    file = tmp_path / "own.py"
    file.write_text(OWN)

    scope = proofs.scope_beyond(resolve_algorithm(f"{file}:mine"))

    assert scope.sizes == "every size"


def test_outcomes_come_in_the_order_of_the_algorithms_whichever_is_done_first(
    monkeypatch,
):
    def last_first(function, items):
        return map(function, reversed(list(items)))

    chosen = [resolve_algorithm("direct", collective) for collective in ("gather", "scatter")]
    given = chosen, (2, 3), "2-3", lambda *_: None
    alone = proofs.prove_wholly(*given)
    monkeypatch.setattr(proofs, "MANY_PROOFS", 1)
    monkeypatch.setattr(spread, "results", last_first)

    assert proofs.prove_wholly(*given) == alone
