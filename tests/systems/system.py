"""Systems under test: code that every rank runs, and the results it must give."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from collectives.communicators.programs import ProgramLauncher
from sim.cluster import Cluster
from tests.systems.training import TOLERANCE

Code = Callable[[int, int], Any]


@dataclass(frozen=True)
class System:
    """An entry of the catalogue.

    Attributes:
        name: how tests call it.
        run: what a rank does, as in a script that ``torchrun`` starts; gives tensors or plain values.
        expected: the same for a rank, got in one process; both take rank and world size.
        world_size: number of ranks.
        calls: collectives that it cannot do without.
        tolerance: by how much numbers may differ.
    """

    name: str
    run: Code
    expected: Code
    world_size: int = 2
    calls: frozenset[str] = field(default_factory=frozenset)
    tolerance: float = TOLERANCE

    def check(self, results: list[Any], calls: Iterable[Counter[str]]) -> None:
        """Check every rank's result, and that the ranks have spoken to each other as they must."""
        for rank, found in enumerate(results):
            assert difference(found, self.expected(rank, self.world_size)) <= self.tolerance
        assert self.calls <= set().union(*calls)


@contextmanager
def counted_calls() -> Iterator[dict[int | None, Counter[str]]]:
    """Count the calls of our communicators, by rank thread; None stands for a process."""
    counts = {}
    launch = ProgramLauncher.launch

    def count(self, request):
        rank_thread = Cluster.current()
        key = None if rank_thread is None else rank_thread.rank
        counts.setdefault(key, Counter())[request.collective] += 1
        return launch(self, request)

    ProgramLauncher.launch = count
    try:
        yield counts
    finally:
        ProgramLauncher.launch = launch


def difference(found, expected) -> float:
    """Return by how much two nested results differ; what is no tensor must be equal."""
    if isinstance(expected, torch.Tensor):
        assert found.shape == expected.shape, (found.shape, expected.shape)
        return (found - expected).abs().max().item() if expected.numel() else 0.0
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        return max((difference(*pair) for pair in zip(found, expected, strict=True)), default=0.0)
    if isinstance(expected, float):
        return abs(found - expected)
    assert found == expected
    return 0.0
