from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from collectives import (
    Copy,
    NotSupportedError,
    ProgramError,
    Recv,
    RecvReduce,
    Reduce,
    Send,
    algorithm,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.algorithms import ALGORITHMS
from collectives.program import Cost
from sim import Topology

SHIPPED = [pytest.param(shipped, id=f"{shipped.collective}-{shipped.name}") for shipped in ALGORITHMS]


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("world_size", [*range(1, 18), 31, 32, 33, 64])
def test_every_shipped_algorithm_is_proved_with_the_cost_it_declares(shipped: Any, world_size: int) -> None:
    try:
        proof = verify(shipped, world_size, root=world_size // 2)
    except NotSupportedError:
        return  # a clear refusal of this world size; anything else is a fault

    assert proof.cost_declared
    assert proof.max_bytes_sent_fraction >= proof.min_bytes_sent_fraction


def test_the_ring_reaches_the_lower_bound_in_bytes() -> None:
    proof = verify("ring", 8)

    assert proof.max_bytes_sent_fraction == proof.min_bytes_sent_fraction == 2 * 7 / 8
    assert proof.num_steps == 14


def exchange(rank: int, world_size: int) -> Any:
    peer = 1 - rank
    mine, other = (0, 1) if rank == 0 else (1, 0)
    yield Send(peer, chunk=mine), RecvReduce(peer, chunk=other)
    yield Send(peer, chunk=other), Recv(peer, chunk=mine)


def test_a_program_of_ones_own_is_proved() -> None:
    proof = verify(exchange, world_size=2)

    assert (proof.num_steps, proof.num_chunks, proof.max_bytes_sent_fraction) == (2, 2, 1.0)


def both_receive_first(rank: int, world_size: int) -> Any:
    yield RecvReduce(1 - rank, 0)
    yield Send(1 - rank, 0)


def nobody_sends_back(rank: int, world_size: int) -> Any:
    yield Send(0, 0, when=rank == 1), RecvReduce(1, 0, when=rank == 0)


def twice(rank: int, world_size: int) -> Any:
    for _ in range(2):
        yield Send(1 - rank, 0), RecvReduce(1 - rank, 0)
        yield Send(1 - rank, 1), RecvReduce(1 - rank, 1)


def crossed(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 0), RecvReduce(1 - rank, 1)
    yield Send(1 - rank, 1), RecvReduce(1 - rank, 0)


def moved(rank: int, world_size: int) -> Any:
    yield Copy(0, 1)


def never_touched(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 0), RecvReduce(1 - rank, 0)


def two_writes(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 0), RecvReduce(1 - rank, 0), Copy(0, 0)


def to_nobody(rank: int, world_size: int) -> Any:
    yield Send(2, 0), Recv(2, 0)


def to_itself(rank: int, world_size: int) -> Any:
    yield Send(rank, 0), Recv(rank, 0)


def beyond_the_buffer(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 1, num_chunks=2), RecvReduce(1 - rank, 1, num_chunks=2)


def lengths_differ(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 0, num_chunks=1 + rank), RecvReduce(1 - rank, 0, num_chunks=1 + rank)


def no_operation(rank: int, world_size: int) -> Any:
    yield ["send", 1]


def fails(rank: int, world_size: int) -> Any:
    yield ()
    raise IndexError("list index out of range")


@pytest.mark.parametrize(
    ("program", "evidence"),
    [
        (both_receive_first, "rank 1, step 0: RecvReduce(peer=0, chunk=0)"),
        (nobody_sends_back, "rank 0, chunk 1 is never written"),
        (twice, "more than once (since step 2)"),
        (crossed, "the two sides of a message differ in the chunks"),
        (
            moved,
            "chunk 0 may not go to chunk 1, as the last may be shorter than others\n  Copy(source=0,",
        ),
        (never_touched, "chunk 1 is never written"),
        (two_writes, "chunk 0 is also written by RecvReduce(peer=1, chunk=0)"),
        (to_nobody, "there is no rank 2"),
        (to_itself, "a rank cannot be its own peer"),
        (beyond_the_buffer, "out of range, the buffer has chunks 0 to 1"),
        (lengths_differ, "the two sides of a message differ in length"),
        (no_operation, "a step is a tuple of Send, Recv, RecvReduce, Copy and Reduce"),
        (fails, "rank 0, step 1: the program raised IndexError: list index out of range"),
    ],
)
def test_a_wrong_program_is_refused_with_the_evidence(program: Any, evidence: str) -> None:
    with pytest.raises(ProgramError) as refusal:
        verify(program, 2)

    assert f"{program.__name__}, all_reduce, world size 2: " in str(refusal.value)
    assert evidence in str(refusal.value)


def mixes(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, rank), RecvReduce(1 - rank, rank)


def test_contributions_to_different_chunks_may_not_be_added() -> None:
    with pytest.raises(ProgramError, match="rank 0, chunk 0 holds contributions to different chunks"):
        verify(mixes, 2, collective="reduce_scatter")


def reduces_into_nothing(rank: int, world_size: int) -> Any:
    yield Send(1, 0, when=rank == 0), RecvReduce(0, 0, when=rank == 1)
    yield Send(1, 1, when=rank == 0), Recv(0, 1, when=rank == 1)


def test_what_nobody_has_put_there_may_not_be_reduced_with() -> None:
    with pytest.raises(ProgramError, match="rank 1, chunk 0 holds something undefined, made of a chunk"):
        verify(reduces_into_nothing, 2, collective="broadcast")


def test_a_refusal_shows_the_grid_with_the_bad_cell_in_brackets() -> None:
    with pytest.raises(ProgramError) as refusal:
        verify(both_receive_first, 2)

    assert str(refusal.value).endswith("        rank 0  rank 1\nstep 0  [0+1]   0+0\nstep 1  0>1     0>0")


def test_the_grid_of_an_error_fits_on_a_line_of_100_characters() -> None:
    def all_to_all_ranks(rank: int, world_size: int) -> Any:
        for chunk in [*range(world_size)] * 2:
            others = [peer for peer in range(world_size) if peer != rank]
            yield tuple(side(peer, chunk) for peer in others for side in (Send, RecvReduce))

    with pytest.raises(ProgramError, match="more than once") as refusal:
        verify(all_to_all_ranks, 16)

    grid = str(refusal.value).splitlines()[2:]
    assert max(map(len, grid)) <= 100
    assert "[0>1 0+1 0>2 0+2 … 26 more]" in "\n".join(grid)


def test_where_nothing_was_written_no_cell_of_the_grid_is_marked() -> None:
    with pytest.raises(ProgramError) as refusal:
        verify(never_touched, 2)

    assert str(refusal.value).endswith("        rank 0   rank 1\nstep 0  0>1 0+1  0>0 0+0")


def test_a_fault_is_shown_although_the_program_fails_a_step_later() -> None:
    def fails_later(rank: int, world_size: int) -> Any:
        yield Send(2, 0)
        raise IndexError

    with pytest.raises(ProgramError, match=r"there is no rank 2\n  Send\(peer=2, chunk=0\)\n"):
        verify(fails_later, 2)


@pytest.mark.parametrize(
    ("num_chunks", "evidence"), [(0, "into 0 chunks; expected at least 1"), (3, "expected a multiple of 2")]
)
def test_a_number_of_chunks_that_cannot_be_is_refused(num_chunks: int, evidence: str) -> None:
    @algorithm(num_chunks=num_chunks, collective="all_gather")
    def divided(rank: int, world_size: int) -> Any:
        yield ()

    with pytest.raises(ProgramError, match=evidence):
        verify(divided, 2)


def test_a_world_size_that_the_program_refuses_is_no_fault_of_the_program() -> None:
    def pairs_only(rank: int, world_size: int) -> Any:
        if world_size != 2:
            raise NotSupportedError(f"pairs_only needs 2 ranks, got {world_size}; use ring")
        yield from exchange(rank, world_size)

    assert verify(pairs_only, 2).num_steps == 2
    with pytest.raises(NotSupportedError, match="needs 2 ranks, got 3; use ring"):
        verify(pairs_only, 3)


def test_an_endless_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(rank: int, world_size: int) -> Any:
        while True:
            yield ()

    monkeypatch.setattr("collectives.program.program.MAX_STEPS", 100)
    with pytest.raises(ProgramError, match="does the program end"):
        verify(endless, 2)
    with pytest.raises(ProgramError, match="does the program end"):
        simulate(endless, nbytes=8, topology=Topology.switch(num_ranks=2, bandwidth="1Gbps", latency="1us"))


def test_a_wrong_declared_cost_is_refused() -> None:
    ring = replace(resolve_algorithm("ring"), declared_cost=lambda p: Cost(2 * p, Fraction(1)))

    with pytest.raises(ProgramError, match="num_steps is declared as 8, counted 6"):
        verify(ring, 4)


def test_an_array_form_that_is_another_program_is_refused() -> None:
    @algorithm(array_form=True)
    def branches(rank: Any, world_size: int) -> Any:
        shift = 1 if isinstance(rank, int) else 2
        yield from resolve_algorithm("ring", "reduce_scatter")(rank, world_size, shift=shift)
        yield from resolve_algorithm("ring", "all_gather")(rank, world_size, shift=shift)

    with pytest.raises(ProgramError, match="the array form differs from the program of rank 0 in step 0"):
        verify(branches, 4)


@pytest.mark.parametrize("world_size", [0, -1])
def test_a_world_of_no_ranks_is_refused(world_size: int) -> None:
    with pytest.raises(ValueError, match="world_size must be at least 1"):
        verify("ring", world_size)


def through_scratch(rank: int, world_size: int) -> Any:
    yield Send(1 - rank, 0), Recv(1 - rank, 1)
    yield Reduce(1, 0)


def test_scratch_takes_what_is_received_until_it_is_reduced() -> None:
    shipped = algorithm(num_chunks=1, scratch_chunks=1)(through_scratch)

    assert verify(shipped, 2).num_steps == 1


def test_scratch_that_was_not_asked_for_is_refused() -> None:
    with pytest.raises(ProgramError, match="out of range, the buffer has chunks 0 to 0"):
        verify(algorithm(num_chunks=1)(through_scratch), 2)


@pytest.mark.parametrize(
    ("operation", "evidence"),
    [
        (Reduce(3, 1, num_chunks=2), "half in the buffer, half in scratch, which begins with chunk 2"),
        (Copy(4, 0), "out of range, the buffer has chunks 0 to 1, and scratch chunks 2 to 3"),
        (Reduce(2, 1), "chunk 2 may not go to chunk 1, as the last may be shorter than others"),
    ],
)
def test_scratch_is_no_part_of_the_buffer(operation: Any, evidence: str) -> None:
    @algorithm(num_chunks=2, scratch_chunks=2)
    def wrong(rank: int, world_size: int) -> Any:
        yield operation

    with pytest.raises(ProgramError, match=re.escape(evidence)):
        verify(wrong, 1)


def test_what_is_reduced_out_of_scratch_must_have_been_put_there() -> None:
    @algorithm(num_chunks=1, scratch_chunks=1)
    def wrong(rank: int, world_size: int) -> Any:
        yield Reduce(1, 0)

    with pytest.raises(ProgramError, match="holds something undefined, made of a chunk"):
        verify(wrong, 1)


@pytest.mark.parametrize("last", [False, True])
def test_a_local_move_counts_wherever_its_step_lists_it(last: bool) -> None:
    def keep(rank: int, world_size: int) -> Any:
        messages = Send(1 - rank, 0), Recv(1 - rank, 2)
        yield (*messages, Copy(0, 1)) if last else (Copy(0, 1), *messages)
        yield Copy(1, 0)  # what was copied there must be the rank's own
        yield Reduce(2, 0)

    shipped = algorithm(num_chunks=1, scratch_chunks=2)(keep)

    assert verify(shipped, 2).num_messages == 2
