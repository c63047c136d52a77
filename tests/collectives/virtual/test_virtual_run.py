"""Runs in virtual time: they repeat, and their traces hold what they did."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.errors import UnknownAlgorithmError
from collectives.virtual import run
from sim.trace import Trace
from tests.collectives.virtual.clusters import all_reduce_once, rank_thread
from tests.given import switch


def test_an_unknown_algorithm_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownAlgorithmError, match="ring"):
        run(all_reduce_once, network=switch(2), algorithm="rign")


@pytest.mark.costly
@given(
    world_size=st.integers(1, 5),
    numel=st.integers(0, 40),
    charges=st.lists(st.integers(0, 10**7), min_size=5, max_size=5),
)
@settings(max_examples=25)
def test_runs_repeat_bit_for_bit_and_picosecond_for_picosecond(
    world_size: int, numel: int, charges: list[int]
) -> None:
    def work(rank: int) -> Any:
        dist.init_process_group()
        torch.manual_seed(rank)
        tensor = torch.randn(numel)
        rank_thread().charge_ps(charges[rank])
        handle = dist.all_reduce(tensor, async_op=True)
        gathered = [torch.empty(3) for _ in range(world_size)]
        dist.all_gather(gathered, torch.rand(3))
        handle.wait()
        return [tensor.tolist(), [part.tolist() for part in gathered], random.random()]

    first, second = (run(work, network=switch(world_size)) for _ in range(2))

    assert first.results == second.results
    assert first.times_ps == second.times_ps
    assert all(result[:2] == first.results[0][:2] for result in first.results)


def test_a_trace_holds_what_was_charged_and_every_collective() -> None:
    trace = Trace()

    def work(rank: int) -> None:
        dist.init_process_group()
        rank_thread().charge("forward")
        dist.all_reduce(torch.ones(8))

    outcome = run(work, network=switch(2), compute={"forward": 1000}, trace=trace)

    assert [(span.rank, span.track, span.start_ps, span.end_ps) for span in trace.spans] == [
        (0, "compute", 0, 1000),
        (1, "compute", 0, 1000),
        (0, "communication", 1000, outcome.times_ps[0]),
        (1, "communication", 1000, outcome.times_ps[1]),
    ]
