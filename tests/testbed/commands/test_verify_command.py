"""`testbed verify`: what it prints, and how it ends."""

import pytest

from collectives.algorithms import ALGORITHMS
from testbed.studies import proofs
from tests.commands import called, reported, rows_of

EXCHANGE = """
from collectives import NotSupportedError, Recv, RecvReduce, Send

def exchange(rank, world_size):
    peer = 1 - rank
    yield Send(peer, chunk=rank), RecvReduce(peer, chunk=peer)
    yield Send(peer, chunk=peer), Recv(peer, chunk=rank)

def deaf(rank, world_size):
    yield RecvReduce(1 - rank, chunk=0)

def picky(rank, world_size):
    if world_size != 2:
        raise NotSupportedError(f"needs 2 ranks, got {world_size}; use ring")
    yield from exchange(rank, world_size)
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(EXCHANGE, encoding="utf-8")
    return path


@pytest.fixture
def without_solver(monkeypatch):
    """Prove one world size after another only: all of them at once, the page of algorithms has."""
    monkeypatch.setattr(proofs, "solver_is_there", lambda: False)


@pytest.mark.usefixtures("without_solver")
def test_shipped_algorithms_are_proved_for_every_collective_and_world_size():
    rows = rows_of("verify --ranks 2-5")

    assert all(row["proved"] for row in rows)
    proved = {(row["algorithm"].partition(":")[0], row["collective"], row["world_size"]) for row in rows}
    assert {own[:2] for own in proved} == {(shipped.name, shipped.collective) for shipped in ALGORITHMS}
    ring = [own.collective for own in ALGORITHMS if own.name == "ring"]
    assert proved >= {("ring", collective, ranks) for collective in ring for ranks in range(2, 6)}
    by_name = [(row["collective"], row["world_size"]) for row in rows_of("verify ring --ranks 2,3")]
    assert by_name == [(collective, ranks) for collective in ring for ranks in (2, 3)]


@pytest.mark.usefixtures("without_solver")
def test_what_the_budget_leaves_out_is_said():
    line = "verify ring tree --collective all_reduce --ranks 2-4,64 --budget 5000"

    shown, body = called(line).stdout, reported(line)

    assert "3 of 4, 1 left out" in shown
    assert "more than about 5000 operations:\n  64 ranks: ring (all_reduce)\n" in shown
    assert body["left_out"] == [{"algorithm": "ring", "collective": "all_reduce", "world_sizes": [64]}]
    assert [row["world_size"] for row in body["rows"]] == [2, 3, 4, 2, 3, 4, 64]


@pytest.mark.usefixtures("without_solver")
def test_the_table_names_the_collective_unless_all_is_all_reduce():
    one, several = (
        called(f"verify {own} --ranks 2-4").stdout
        for own in ("ring --collective all_reduce", "tree:root=1 --collective broadcast")
    )

    assert one.split()[:3] == ["algorithm", "proved", "for"]
    assert "reduce_scatter" not in one
    assert several.split()[:2] == ["collective", "algorithm"]
    assert "broadcast   tree:root=1" in several


def test_a_world_size_that_is_refused_is_no_failure_and_its_reason_is_told_once(own):
    line, reason = f"verify {own}:picky --ranks 2-5", "needs 2 ranks, got 3; use ring"

    shown, found = called(line).stdout, reported(line)

    assert "1 of 4, 3 refused" in shown
    assert shown.count(f"refused for 3 world sizes: {reason}") == 1
    assert [row["world_size"] for row in found["rows"]] == [2]
    assert (found["rows"][0]["num_steps"], found["rows"][0]["max_bytes_sent_fraction"]) == (2, 1.0)
    (refused,) = found["refused"]
    assert (refused["algorithm"], refused["world_sizes"], refused["reason"]) == ("picky", [3, 4, 5], reason)


@pytest.mark.parametrize("extra", ["", "--json"])
def test_a_wrong_program_ends_with_1_and_the_evidence(own, extra):
    shown = called(f"verify {own}:deaf --ranks 2 {extra}", code=1).stdout

    assert "deadlock" in shown
    assert "step 0  [" in shown
