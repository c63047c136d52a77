"""Progress on calls: a rank that computes advances nothing; one that calls, polls or waits does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Communicator, connect, simulate
from collectives.virtual import Roofline, run
from sim import load_device
from sim.units import parse_time, transfer_ps
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch

MS = parse_time("1ms")
STEP = parse_time("4us")
BYTES = 4 * 1200
MODEL = Roofline(load_device("laptop-cpu"))
OPTIONS = {"overhead": "1us", "arrival_overhead": "3us", "reduction_bandwidth": "2GB/s"}


def waited(
    ranks: int, meanwhile: Callable[[Any, Any], None] | None = None, algorithm: str = "ring", **options
) -> set[int]:
    """Return how long *ranks* wait for a sum that they ask for together and, unless *meanwhile* is none,
    come back to after a millisecond in which they do that with their communicator and the call.
    """

    def work(rank):
        own, thread = communicator(algorithm), rank_thread()
        thread.charge_ps(MS - thread.now_ps())
        summed = own.all_reduce(torch.ones(1200), async_op=True)
        if meanwhile is not None:
            meanwhile(own, summed)
            thread.charge_ps(2 * MS - thread.now_ps())
        summed.wait()
        return thread.now_ps() - (MS if meanwhile is None else 2 * MS)

    return set(run(work, ranks, switch(ranks), **options).results)


def communicator(algorithm="ring") -> Communicator:
    dist.init_process_group("testbed")
    own = connect(algorithm=algorithm)
    own.barrier()
    return own


@pytest.mark.parametrize("model", ["ideal", "gloo"])
@pytest.mark.parametrize("algorithm", ["ring", "tree", "recursive_doubling", "direct", "double_binary_tree"])
def test_ranks_that_wait_at_once_take_what_is_simulated(algorithm, model):
    options = {"transport_model": model, **OPTIONS}

    expected = simulate(algorithm, nbytes=BYTES, itemsize=4, topology=switch(4), **options)

    assert max(waited(4, algorithm=algorithm, **options)) == expected.time_ps


def five(look: str) -> Callable[[Any, Any], None]:
    """Return what looks five times whether there is something to do: by a poll, or a test of the call."""

    def meanwhile(own, summed):
        for _ in range(5):
            rank_thread().charge_ps(MS // 10)
            own.poll() if look == "polls" else summed.is_completed()

    return meanwhile


def nothing(own, summed) -> None:
    pass


HALF, WHOLE = (STEP + transfer_ps(nbytes, 12_500_000_000) for nbytes in (BYTES // 2, BYTES))


@pytest.mark.parametrize(
    ("ranks", "meanwhile", "algorithm", "model", "expected"),
    [
        (2, nothing, "ring", "ideal", 0),
        (2, nothing, "ring", "gloo", HALF),  # the first of two steps was posted by the call
        (2, five("polls"), "ring", "gloo", 0),  # and the second by a poll
        (2, five("polls"), "ring", "nccl", 0),
        # in recursive doubling every rank reduces into what it sends: only a test knows when that is over
        (4, five("tests"), "recursive_doubling", "gloo", 0),
        (4, five("polls"), "recursive_doubling", "gloo", WHOLE),
    ],
)
def test_a_rank_that_computes_advances_nothing_but_by_polls_and_tests(
    ranks, meanwhile, algorithm, model, expected
):
    assert waited(ranks, meanwhile, algorithm, transport_model=model) == {expected}


@pytest.mark.parametrize(("model", "expected"), [("ideal", 4 * HALF), ("gloo", 4 * HALF - STEP)])
def test_what_is_posted_beside_shares_the_link(model, expected):
    def work(rank):
        own, thread = communicator(), rank_thread()
        began_ps = thread.now_ps()
        works = [own.all_reduce(torch.ones(1200), async_op=True) for _ in range(2)]
        for one in works:
            one.wait()
        return thread.now_ps() - began_ps

    assert set(run(work, 2, switch(2), transport_model=model).results) == {expected}


def test_what_collectives_reduce_is_not_computed_by_the_script():
    def work(rank):
        summed = communicator().all_reduce(torch.ones(1200), async_op=True)
        summed.is_completed()
        summed.wait()

    own, other = (run(work, 3, transport_model=model, compute=MODEL).cluster for model in ("ideal", "gloo"))

    assert own.computed_ps == other.computed_ps


@settings(max_examples=10)
@given(
    st.integers(2, 5),
    st.lists(st.integers(1, 400), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from(["ring", "recursive_doubling", "tree", "direct"]),
)
def test_results_are_the_same_whatever_ranks_compute_meanwhile(ranks, counts, seed, algorithm):
    def work(rank):
        own, thread = communicator(algorithm), rank_thread()
        draw = torch.Generator().manual_seed(seed + rank)
        tensors = [torch.arange(count, dtype=torch.float64) * (rank + 1) for count in counts]
        works = []
        for tensor in tensors:
            works.append(own.all_reduce(tensor, async_op=True))
            thread.charge_ps(int(torch.randint(0, 20_000_000, (), generator=draw)))
            own.poll()
        for number in torch.randperm(len(works), generator=draw).tolist():
            works[number].wait()
        return [float(tensor.sum()) for tensor in tensors]

    expected = [sum(range(count)) * ranks * (ranks + 1) / 2 for count in counts]
    for result in run(work, ranks, switch(ranks), transport_model="gloo", **OPTIONS).results:
        assert result == expected


def test_the_report_says_which_model_and_what_software_costs():
    def work(rank):
        communicator()

    report = run(work, 2, switch(2), transport_model="gloo", **OPTIONS).report
    said = report.to_json()
    assert said["transport_model"] == report.transport_model == "gloo"
    assert (said["overhead_seconds"], said["arrival_overhead_seconds"]) == (1e-6, 3e-6)
    assert said["reduction_bandwidth"] == 2 * 10**9
    assert run(work, 2, switch(2)).report.transport_model == "ideal"


@pytest.mark.parametrize(("nbytes", "ranks"), [(4, 2), (2**20, 4), (5 * 2**20, 3)])
def test_what_gloo_runs_takes_as_long_as_simulated_and_goes_on_while_its_rank_computes(nbytes, ranks):
    topology = switch(ranks)

    def work(rank, busy_ps):
        dist.init_process_group()
        tensor = torch.ones(nbytes // 4)
        handle = dist.all_reduce(tensor, async_op=True)
        rank_thread().charge_ps(busy_ps)
        handle.wait()
        return tensor.unique().tolist()

    expected = simulate(
        "native", nbytes=nbytes, itemsize=4, topology=topology, transport_model="gloo", **OPTIONS
    )
    asked = {"algorithm": "native", "transport_model": "gloo", **OPTIONS}
    alone = run(lambda rank: work(rank, 0), ranks, topology, **asked)
    busy = run(lambda rank: work(rank, expected.time_ps), ranks, topology, **asked)

    assert alone.results == [[float(ranks)]] * ranks
    assert max(alone.times_ps) == max(busy.times_ps) == expected.time_ps
    assert alone.report.to_json()["algorithm"] == "native"
