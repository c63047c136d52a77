"""Few steps that a solver finds: right, no slower than it says, and faster than what trees alone come to."""

from __future__ import annotations

import pytest

from benchmarks.synthesis import random_graph
from collectives import verify
from collectives.simulation import simulate
from collectives.synthesis import search, synthesize
from collectives.synthesis.candidates import Problem
from collectives.synthesis.few_steps import MAX_RANKS, few_steps

pytest.importorskip("scipy")
pytest.importorskip("z3")

NBYTES = 4096


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("seed", [28, 31])
def test_a_program_is_right_and_takes_no_longer_than_the_solver_was_told(collective: str, seed: int) -> None:
    topology = random_graph(seed)
    assert topology.num_ranks <= MAX_RANKS

    found = few_steps(Problem.of(topology, collective, 1), NBYTES, below=1e-3)

    assert found is not None
    algorithm = found.schedule(topology, collective, 1).algorithm()
    verify(algorithm, topology.num_ranks, root=1)
    taken = simulate(algorithm, nbytes=NBYTES, topology=topology).seconds
    assert 0.8 * found.estimate < taken < found.estimate * (1 + 1e-6)


@pytest.mark.costly
def test_few_steps_are_faster_where_latency_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = random_graph(28)
    best = synthesize(topology, "broadcast", NBYTES).best_seconds
    monkeypatch.setattr(search, "has_solver", lambda: False)

    assert best < 0.95 * synthesize(topology, "broadcast", NBYTES).best_seconds
