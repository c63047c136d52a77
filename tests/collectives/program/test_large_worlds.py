"""Proofs of shipped algorithms for world sizes that are too many to prove all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from collectives import NotSupportedError, algorithm, resolve_algorithm, verify
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm
from collectives.proof import estimate_work

SHIPPED = [pytest.param(shipped, id=f"{shipped.collective}-{shipped.name}") for shipped in ALGORITHMS]
OCTAVES = (128, 1024)
BUDGET = 100_000
"""Operations of one proof: about half a second."""


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    yield counts
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        said = ", ".join(f"{counts[what]} {what}" for what in ("proved", "refused", "over the budget"))
        print(f"\nshipped algorithms at world sizes sampled from 65 to 1024: {said}")


def sample(shipped: Algorithm) -> Iterator[int]:
    """Yield, of the first octave and the last, its power of two and a size at random, always the same."""
    generator = random.Random(f"{shipped.collective} {shipped.name}")
    for power in OCTAVES:
        yield power
        yield generator.randrange(power // 2 + 1, power)


@pytest.mark.slow
@pytest.mark.parametrize("shipped", SHIPPED)
def test_every_shipped_algorithm_is_proved_as_far_as_the_budget_allows(
    shipped: Any, tally: Counter[str]
) -> None:
    for world_size in sample(shipped):
        if estimate_work(shipped, world_size) > BUDGET:
            tally["over the budget"] += 1
            continue
        try:
            proof = verify(shipped, world_size, root=world_size // 2)
        except NotSupportedError:
            tally["refused"] += 1
            continue
        tally["proved"] += 1
        assert proof.cost_declared


def test_the_work_of_a_proof_grows_with_operations_and_with_chunks() -> None:
    # Each of 64 ranks takes 126 steps of 2 operations, and holds 64 chunks.
    expected = 64 * (126 * 3 + (126 * 2 + 64) / 8)
    assert estimate_work(resolve_algorithm("ring"), 64) == pytest.approx(expected, rel=0.01)
    assert estimate_work(resolve_algorithm("bruck", "all_to_all"), 64) > estimate_work(
        resolve_algorithm("bruck", "all_gather"), 64
    )


def test_a_program_that_fails_is_left_to_the_proof_to_report() -> None:
    @algorithm()
    def fails(rank: int, world_size: int) -> Any:
        yield ()
        raise IndexError

    assert estimate_work(fails, 2) < 10
