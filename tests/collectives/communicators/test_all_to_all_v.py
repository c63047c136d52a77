"""All-to-all of parts of any size, where ranks disagree about the sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import CollectiveError, MismatchError
from collectives.communicators.communicator import Communicator
from collectives.communicators.connection import connect
from collectives.communicators.programs import ProgramLauncher
from collectives.program.chunking import Splits
from collectives.transports.threaded import run_threads
from collectives.virtual import run_virtual
from sim import Topology
from sim.errors import RankError
from tests.distributed.pool import WorkerPool


def two_that_disagree(communicator: Any) -> str:
    """Rank 1 sends 3 rows of 2 to rank 2, which expects 1; everybody else exchanges 1 row."""
    p, rank = communicator.world_size, communicator.rank
    splits = [1] * p
    if rank == 1:
        splits[2] = 3
    tensor, output = torch.full((sum(splits), 2), float(rank)), torch.full((p, 2), -1.0)
    try:
        communicator.all_to_all(output, tensor, [1] * p, splits)
    except MismatchError as error:
        others = [source for source in range(p) if {source, rank} != {1, 2}]
        assert torch.equal(output[1 if rank == 2 else 2], torch.full((2,), -1.0))
        assert torch.equal(output[others], torch.tensor(others).float()[:, None].expand(-1, 2))
        return str(error)
    assert torch.equal(output, torch.arange(p).float()[:, None].expand(p, 2))
    return ""


def over_gloo(rank: int, world_size: int) -> str:
    return two_that_disagree(connect(algorithm="ring", timeout=20))


def check(results: list[str]) -> None:
    assert [bool(result) for result in results] == [False, True, True, False]
    for rank in (1, 2):
        assert results[rank].startswith(f"rank {rank}: all_to_all #0 (direct, 2 × float32, by parts): ")
        assert "rank 1 sends 6 elements to rank 2, which expects 2" in results[rank]


def test_two_ranks_that_disagree_about_a_part_both_say_so_and_the_others_get_theirs() -> None:
    check(
        run_threads(
            lambda transport: two_that_disagree(Communicator(ProgramLauncher(transport))), 4, timeout=20
        )
    )


@pytest.mark.costly
@pytest.mark.distributed
def test_two_processes_that_disagree_about_a_part_both_say_so(pool: WorkerPool) -> None:
    check(pool.run(over_gloo, 4))


def test_in_virtual_time_a_rank_that_disagrees_ends_the_run() -> None:
    def run(rank: int) -> None:
        dist.init_process_group("testbed")
        given = [1, 1] if rank else [1, 2]
        dist.all_to_all_single(torch.zeros(2), torch.zeros(sum(given)), [1, 1], given)

    with pytest.raises(RankError, match="rank 0 sends 2 elements to rank 1, which expects 1") as caught:
        run_virtual(run, Topology.switch(num_ranks=2, bandwidth="10Gbps", latency="1us"))

    assert isinstance(caught.value.__cause__, MismatchError)


def test_one_that_gives_sizes_and_one_that_does_not_are_named() -> None:
    def mixed(transport: Any) -> str:
        communicator, tensor = Communicator(ProgramLauncher(transport)), torch.zeros(4)
        with pytest.raises(CollectiveError) as caught:
            communicator.all_to_all(tensor.clone(), tensor, *([[2, 2]] * 2 if transport.rank else []))
        return str(caught.value)

    for text in run_threads(mixed, 2, timeout=0.5):
        assert "all_to_all #0 (direct, 1 × float32, by parts)" in text
        assert "all_to_all #0 (direct, 4 × float32)" in text


@given(seed=st.integers(0, 10**6), p=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_whatever_the_ranks_believe_pairs_that_agree_exchange_and_the_others_raise(seed: int, p: int) -> None:
    choose = torch.Generator().manual_seed(seed)
    sends = torch.randint(0, 4, (p, p), generator=choose)
    expects = sends.t().clone()
    wrong = torch.rand(p, p, generator=choose) < 0.15
    wrong.fill_diagonal_(False)
    expects[wrong] += 1

    def run(transport: Any) -> tuple[str, list[float]]:
        rank = transport.rank
        tensor = torch.repeat_interleave(torch.arange(p * 1.0) + 10 * rank, sends[rank])
        output = torch.full((int(expects[rank].sum()),), -1.0)
        try:
            Communicator(ProgramLauncher(transport)).all_to_all(
                output, tensor, expects[rank].tolist(), sends[rank].tolist()
            )
        except MismatchError as error:
            return str(error), output.tolist()
        return "", output.tolist()

    for rank, (error, output) in enumerate(run_threads(run, p, timeout=20)):
        bad = {peer for peer in range(p) if wrong[rank, peer] or wrong[peer, rank]}
        assert bool(error) == bool(bad)
        for peer in bad:
            assert (f"rank {peer} sends {sends[peer, rank]} elements to rank {rank}, which" in error) == bool(
                wrong[rank, peer]
            )
        assert output == [
            -1.0 if peer in bad else 10.0 * peer + rank
            for peer in range(p)
            for _ in range(expects[rank, peer])
        ]


def test_splits_count_the_chunks_of_the_buffer_and_then_those_of_the_scratch() -> None:
    splits = Splits((0, 2, 2, 5, 6, 9, 9), num_chunks=3, itemsize=4)

    assert splits.count == 5
    assert [splits.span(chunk) for chunk in range(6)] == [(0, 2), (2, 2), (2, 5), (5, 6), (6, 9), (9, 9)]
    assert splits.span(0, 3) == (0, 5)
    assert splits.nbytes(2) == 12
