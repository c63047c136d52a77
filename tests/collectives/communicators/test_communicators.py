"""Choices of algorithms, and all-to-all of parts of any size."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import CollectiveError, Communicator, MismatchError, connect
from collectives.communicators.on_one_host import OnOneHost
from collectives.communicators.programs import ProgramLauncher
from collectives.program.contracts import CONTRACTS
from collectives.transports.threaded import run_threads
from collectives.virtual import run_virtual
from sim import Topology

Sizes = list[list[int]]


def exchange(communicator: Communicator, sends: Sizes, expects: Sizes) -> tuple[str, list[list[float]]]:
    """Exchange so many rows of two with each rank; return the error, if any, and the rows that came."""
    rank = communicator.rank
    tensor = torch.arange(1.0 * communicator.world_size).repeat_interleave(torch.tensor(sends[rank]))
    tensor, output = tensor + 10 * rank, torch.full((sum(expects[rank]), 2), -1.0)
    said = ""
    try:
        communicator.all_to_all(output, tensor[:, None].repeat(1, 2), expects[rank], sends[rank])
    except MismatchError as error:
        said = str(error)
    return said, output.tolist()


def check(results: list[tuple[str, list[list[float]]]], sends: Sizes, expects: Sizes) -> None:
    """Pairs of ranks that agree have exchanged; of others both say so, and have got nothing."""
    p = len(results)
    wrong = {(a, b) for a in range(p) for b in range(p) if sends[a][b] != expects[b][a]}
    for rank, (said, rows) in enumerate(results):
        bad = {peer for peer in range(p) if {(rank, peer), (peer, rank)} & wrong}
        assert bool(said) == bool(bad)
        assert said.startswith(f"rank {rank}: all_to_all #0 (direct, 2 × float32, by parts): " * bool(bad))
        for peer in bad:
            sent, awaited = 2 * sends[peer][rank], 2 * expects[rank][peer]
            told = f"rank {peer} sends {sent} elements to rank {rank}, which expects {awaited}"
            assert (told in said) == ((peer, rank) in wrong)
        assert rows == [
            [-1.0 if peer in bad else 10.0 * peer + rank] * 2
            for peer in range(p)
            for _ in range(expects[rank][peer])
        ]


@given(seed=st.integers(0, 10**6), p=st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_whatever_the_ranks_believe_pairs_that_agree_exchange_and_the_others_raise(seed, p):
    choose = torch.Generator().manual_seed(seed)
    sends = torch.randint(0, 4, (p, p), generator=choose)
    wrong = torch.rand(p, p, generator=choose) < 0.15
    expects = sends.t() + (wrong & ~torch.eye(p, dtype=torch.bool))
    sizes = sends.tolist(), expects.tolist()

    results = run_threads(
        lambda transport: exchange(Communicator(ProgramLauncher(transport)), *sizes), p, timeout=20
    )

    check(results, *sizes)


def over_gloo(rank: int, world_size: int, *sizes: Sizes) -> tuple[str, list[list[float]]]:
    return exchange(connect(algorithm="ring", timeout=20), *sizes)


@pytest.mark.costly
@pytest.mark.distributed
def test_two_processes_that_disagree_about_a_part_both_say_so_and_the_others_get_theirs(pool):
    sends, expects = [[1, 1, 1, 1], [1, 1, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1]], [[1, 1, 1, 1]] * 4

    check(pool.run(over_gloo, 4, sends, expects), sends, expects)


def test_one_that_gives_sizes_and_one_that_does_not_are_named():
    def mixed(transport):
        communicator, tensor = Communicator(ProgramLauncher(transport)), torch.zeros(4)
        with pytest.raises(CollectiveError) as caught:
            communicator.all_to_all(tensor.clone(), tensor, *([[2, 2]] * 2 if transport.rank else []))
        return str(caught.value)

    for text in run_threads(mixed, 2, timeout=0.5):
        assert "all_to_all #0 (direct, 1 × float32, by parts)" in text
        assert "all_to_all #0 (direct, 4 × float32)" in text


@given(st.integers(2**23, 2**45))
def test_large_buffers_are_reduced_in_segments_that_fit_in_a_cache(nbytes):
    segments = OnOneHost().select("all_reduce", nbytes).parameters["segments"]

    assert 2 <= segments <= 4096
    assert nbytes / segments < 2**23 or segments == 4096


@given(st.sampled_from(sorted(CONTRACTS)), st.integers(0, 2**23 - 1))
def test_others_are_carried_out_as_a_whole(collective, nbytes):
    chosen = OnOneHost().select(collective, nbytes)

    assert chosen.collective == collective
    assert "segments" not in chosen.parameters


MAPPING = {"all_gather": "bruck", "broadcast": "chain:segments=2"}


def test_the_collective_that_a_mapping_names_takes_the_time_of_its_algorithm():
    """In virtual time the algorithm shows: bruck has log2(p) steps, the ring p - 1."""

    def gather(rank):
        torch.distributed.init_process_group("testbed")
        communicator = connect(algorithm=MAPPING)
        output = torch.empty(8)
        communicator.all_gather(output, torch.full((1,), float(rank)))
        return output.tolist()

    network = Topology.switch(num_ranks=8, bandwidth="1GB/s", latency="1ms")
    run = run_virtual(gather, network)

    assert run.results == [[0.0, 1, 2, 3, 4, 5, 6, 7]] * 8
    assert run.seconds == pytest.approx(3 * 2e-3, rel=1e-3)
