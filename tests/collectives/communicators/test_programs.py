"""Algorithms that a communicator runs for each collective."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from collectives import UnknownAlgorithmError
from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import DEFAULTS, fixed
from collectives.communicators.connection import connect
from collectives.virtual import run_virtual
from sim import Topology

MAPPING = {"all_gather": "bruck", "broadcast": "chain:segments=2"}


def test_a_name_is_that_of_all_reduce_and_a_mapping_names_others_too() -> None:
    named, mapped = fixed("tree").algorithms, fixed(MAPPING).algorithms

    assert {name: str(own) for name, own in named.items()} == {**DEFAULTS, "all_reduce": "tree"}
    assert {name: str(own) for name, own in mapped.items()} == {**DEFAULTS, **MAPPING}


def test_the_collective_that_a_mapping_names_takes_the_time_of_its_algorithm() -> None:
    """In virtual time the algorithm shows: bruck has log2(p) steps, the ring p - 1."""

    def gather(rank: int) -> list[float]:
        torch.distributed.init_process_group("testbed")
        communicator = connect(algorithm=MAPPING)
        output = torch.empty(8)
        communicator.all_gather(output, torch.full((1,), float(rank)))
        return output.tolist()

    network = Topology.switch(num_ranks=8, bandwidth="1GB/s", latency="1ms")
    run = run_virtual(gather, network)

    assert run.results == [[0.0, 1, 2, 3, 4, 5, 6, 7]] * 8
    assert run.seconds == pytest.approx(3 * 2e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"all_gather": "tree"}, "unknown algorithm 'tree' for all_gather"),
        ({"all_gathr": "ring"}, "unknown collective 'all_gathr'"),
        ({"all_gather": "native"}, "unknown algorithm 'native' for all_gather"),
        (
            resolve_algorithm("bruck", "all_gather"),
            "bruck is an algorithm for all_gather, not",
        ),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice: Any, message: str) -> None:
    with pytest.raises(UnknownAlgorithmError, match=message):
        fixed(choice)
