"""Injected faults: ranks that die or do wrong, messages and stores that are late, clocks that are set."""

import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.virtual import (
    AbortedGroup,
    ClockJump,
    CrossedGroups,
    DeadRank,
    FailingCode,
    MessageDelay,
    SlowStore,
    VirtualRun,
    run,
)
from sim import ConditionError, DeadlockError, LinkFailedError, LinkFailure, RankError, Straggler
from tests.collectives.virtual.clusters import no_rank_is_left, rank_thread, script, train
from tests.given import switch


def make_calls(rank: int) -> list[float]:
    """Compute, reduce, gather, pass on: what depends on who came first would differ."""
    dist.init_process_group()
    world_size = dist.get_world_size()
    values = torch.arange(6.0) + rank
    for _ in range(3):
        rank_thread().charge_ps(10_000_000 * (1 + rank))
        work = dist.all_reduce(values, async_op=True)
        passed = torch.full((5,), float(rank))
        if rank % 2 == 0 and rank + 1 < world_size:
            dist.send(passed, rank + 1)
        elif rank % 2:
            dist.recv(passed, rank - 1)
        work.wait()
        parts = [torch.empty(5) for _ in range(world_size)]
        dist.all_gather(parts, passed)
        values += torch.cat(parts).sum()
    return values.tolist()


def called(*conditions, ranks: int = 4) -> VirtualRun:
    return run(make_calls, network=switch(ranks), conditions=conditions)


@pytest.mark.costly
@settings(max_examples=15)
@given(seeds=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), ranks=st.integers(2, 5))
def test_delays_of_messages_follow_their_seed_and_change_times_but_never_results(seeds, ranks):
    plain = called(ranks=ranks)
    first, again, other = (called(MessageDelay("50us", seed), ranks=ranks) for seed in (seeds[0], *seeds))

    assert first.results == again.results == other.results == plain.results
    assert first.times_ps == again.times_ps
    assert max(first.times_ps) > max(plain.times_ps)
    assert (first.times_ps == other.times_ps) == (seeds[0] == seeds[1])


@settings(max_examples=settings.default.max_examples // 4)
@given(death_ps=st.integers(0, 300_000_000), victim=st.integers(0, 3), slow=st.booleans())
def test_a_rank_killed_at_any_time_is_named_with_that_time_or_was_through_by_then(death_ps, victim, slow):
    slowness = [Straggler(victim, factor=2, delay="15us")] if slow else []
    death = DeadRank(victim, at=death_ps / 1e12)
    whole = called(*slowness)

    if death_ps >= whole.times_ps[victim] and death.at_ps != whole.times_ps[victim]:
        outcome = called(*slowness, death)
        assert (outcome.times_ps, outcome.results) == (whole.times_ps, whole.results)
    elif death_ps < whole.times_ps[victim] - 10_000_000:  # before its last messages set out
        with pytest.raises(DeadlockError) as caught:
            called(*slowness, death)
        lines = str(caught.value).splitlines()
        assert lines[1 + victim].startswith(f"  rank {victim}: was killed, at ")
        assert any(f"rank {victim} did not take part: killed at " in line for line in lines[5:])


def test_a_rank_that_dies_while_it_computes_has_lived_until_then_and_not_longer():
    lived = []

    def work(rank):
        try:
            for _ in range(10):
                rank_thread().charge_ps(1000)
                lived.append(rank)
        finally:
            lived.append(-1)
        return "through"

    outcome = run(work, network=switch(2), conditions=[DeadRank(1, at=4.5e-9)])

    assert outcome.results == ["through", None]
    assert outcome.times_ps == (10_000, 4500)
    assert lived.count(1) == 4


@settings(max_examples=settings.default.max_examples // 4)
@given(death_ns=st.integers(1, 40_000).filter(lambda death_ns: death_ns % 8000), victim=st.integers(0, 2))
def test_of_what_a_dead_rank_had_posted_only_messages_under_way_arrive(death_ns, victim):
    def work(rank):
        dist.init_process_group()
        handle = dist.all_reduce(torch.ones(3 * 12_500), async_op=True)
        if rank == victim:
            rank_thread().charge_ps(10**9)
        handle.wait()
        return rank_thread().now_ps()

    step_ps = 4_000_000 + 50_000 * 80  # α + β·n/p, 50 kB chunks at 12.5 GB/s
    takes_ps = 4 * step_ps  # 2(p-1) steps; in the last its messages need it no more
    death = DeadRank(victim, at=death_ns / 1e9)

    if death_ns * 1000 > 3 * step_ps:
        outcome = run(work, network=switch(3), conditions=[death])
        assert outcome.results == [None if rank == victim else takes_ps for rank in range(3)]
    else:
        with pytest.raises(DeadlockError, match=f"rank {victim} did not take part: killed at "):
            run(work, network=switch(3), conditions=[death])


SCRIPT = """
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    try:
        for _ in range(4):
            step()
        dist.barrier()
    finally:
        dist.barrier()
"""
PLACE = "at script.py:10 in step: model(torch.ones(4, 8)).sum().backward()"


def test_a_death_in_training_says_in_which_collective_iteration_and_line_the_others_wait(tmp_path):
    with pytest.raises(DeadlockError) as caught:
        run(script(tmp_path, SCRIPT), network=switch(3), conditions=[DeadRank(2, iteration=3)])

    head, *states, place, verdict = str(caught.value).splitlines()
    assert "2 of 3 ranks wait" in head
    for rank, state in enumerate(states[:2]):
        assert re.match(rf"  rank {rank}: waits since .*all_reduce #.*, in iteration 3$", state)
    assert re.match("  rank 2: was killed, at .*in iteration 3$", states[2])
    assert place == f"  ranks 0, 1 {PLACE}"
    assert re.search("all_reduce #.*rank 2 did not take part: killed at ", verdict)
    assert no_rank_is_left()


def test_a_link_that_fails_is_told_with_what_every_rank_does_and_where(tmp_path):
    failure, said = (
        LinkFailure("rank 0 up", at="60us"),
        r"link rank 0 up has failed; lost at .*: all_reduce #",
    )
    with pytest.raises(LinkFailedError, match=said) as caught:
        run(script(tmp_path, SCRIPT), network=switch(3), conditions=[failure])

    (note,) = caught.value.__notes__
    *states, place = note.splitlines()
    assert [state.partition(":")[0] for state in states] == ["rank 0", "rank 1", "rank 2"]
    assert all(", in iteration " in state for state in states)
    assert place == f"ranks 0, 1, 2 {PLACE}"


def test_of_very_many_ranks_the_report_shows_the_first_the_dead_and_who_waits_where():
    def work(rank):
        dist.init_process_group()
        for _ in range(2):
            dist.barrier()

    with pytest.raises(DeadlockError) as caught:
        run(work, network=switch(40), conditions=[DeadRank(30, at="30us")])

    head, *states, place, verdict = str(caught.value).splitlines()
    assert "39 of 40 ranks wait" in head
    assert [state.split(":")[0] for state in states] == [
        *(f"  rank {rank}" for rank in range(16)), "  rank 30", "  and 23 more ranks"
    ]  # fmt: skip
    assert place.startswith("  ranks 0-29, 31-39 at test_injected_faults.py:")
    assert "rank 30 did not take part: killed at 30 us" in verdict


@pytest.mark.parametrize("inside", ["a collective", "a computation"])
def test_an_interrupt_stops_a_run_with_faults_at_once(inside):
    def work(rank):
        dist.init_process_group()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        while inside == "a computation" and rank == 0:
            pass
        for _ in range(10**9):
            dist.barrier()

    with pytest.raises(KeyboardInterrupt):
        run(work, network=switch(3), conditions=[DeadRank(2, at="3000s"), MessageDelay("1us")])

    assert no_rank_is_left()


def iterate(rank: int) -> list[float]:
    """Train, and return the time before each step of the optimizer."""
    dist.init_process_group("gloo")
    times: list[float] = []
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    train(model, [torch.ones(1, 2)] * 3, lambda model: times.append(time.time()))
    return times


def trained(*conditions):
    return run(iterate, ranks=3, conditions=conditions)


def meet(rank: int) -> bytes:
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    store.set(f"rank {rank}", str(rank))
    return store.get(f"rank {(rank + 1) % 3}")


def test_a_slow_store_changes_times_and_no_results():
    calm, slow = run(meet, 3), run(meet, 3, conditions=[SlowStore("1ms", seed=3)])

    assert calm.results == slow.results
    assert slow.seconds > calm.seconds + 1e-3
    assert slow.times_ps == run(meet, 3, conditions=[SlowStore("1ms", seed=3)]).times_ps


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (FailingCode(1, iteration=2, where="rank"), RankError, "rank 1 raised InjectedError: FailingCode"),
        (FailingCode(1, iteration=2, where="hook"), RankError, "rank 1 raised InjectedError: FailingCode"),
        (AbortedGroup(2, iteration=1), RankError, "rank 2: its process group was aborted"),
        (CrossedGroups(0, iteration=2), DeadlockError, "rank 0 called something else"),
    ],
)
def test_what_a_rank_does_wrong_is_told_of_that_rank(fault, error, said):
    with pytest.raises(error, match=said) as caught:
        trained(fault)

    assert error is DeadlockError or caught.value.rank == fault.rank


def test_a_clock_that_is_set_tells_another_time_and_changes_nothing_else():
    calm, set_back = trained(), trained(ClockJump(1, by=-60.0, iteration=2))

    assert set_back.times_ps == calm.times_ps
    first, second, third = set_back.results[1]
    assert 0 <= second - first < 1
    assert third - second < -59
    assert set_back.results[0] == sorted(set_back.results[0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DeadRank(1), "expected an iteration or a time"),
        (lambda: DeadRank(1, iteration=2, at="1ms"), "one of them"),
        (lambda: DeadRank(1, iteration=-2), "expected a number from 0, got -2"),
        (lambda: DeadRank(1, at="soon"), "soon"), (lambda: MessageDelay("50us", seed=-1), "seed"),
        (lambda: FailingCode(0, iteration=0), ""), (lambda: FailingCode(0, where="nowhere"), ""),
        (lambda: AbortedGroup(0, iteration=-1), ""), (lambda: ClockJump(0, by=float("nan")), ""),
        (lambda: SlowStore("1ms", seed=-1), ""),
        (lambda: called(DeadRank(4, at="1ms")), "has places 0 to 3, got 4"),
        (lambda: called(DeadRank(1, iteration=1), DeadRank(1, at="1ms")), "a rank dies once"),
        (lambda: called(MessageDelay("1us"), MessageDelay("2us")), "2 for MessageDelay; give one"),
        (lambda: called("slow"), "got 'slow'"),
    ],
)  # fmt: skip
def test_a_fault_that_cannot_be_is_refused_in_one_line(make, words):
    with pytest.raises((ConditionError, ValueError)) as caught:
        make()

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
