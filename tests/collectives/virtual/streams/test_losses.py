"""Every instant of a wait has one cause, and each cause of lost time can be brought about alone."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual import Roofline, end_iteration, run
from collectives.virtual.streams.losses import (
    BYTES,
    HOST,
    LATE,
    LATENCY,
    PIPELINE,
    Flown,
    FlownCalls,
)
from sim import Straggler, load_device
from sim.topology import Topology

MILLISECOND = 10**9  # picoseconds


@st.composite
def flown_calls(draw: st.DrawFn) -> list[Flown]:
    """Return calls of one stream, in order, none beside another."""
    calls, now_ps = [], 0
    for _ in range(draw(st.integers(1, 4))):
        idle_ps, awaited_ps = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        began_ps = now_ps + awaited_ps + idle_ps
        met_ps = draw(st.integers(0, began_ps + 8))
        ended_ps = max(began_ps, met_ps) + draw(st.integers(0, 9))
        wire_ps, is_message = draw(st.integers(0, 12)), draw(st.booleans())
        calls.append(Flown(began_ps, met_ps, ended_ps, wire_ps, is_message, idle_ps))
        now_ps = ended_ps
    return calls


def cause_at(calls: list[Flown], now_ps: int) -> str | None:
    """Return what a stream waits for at *now_ps* that waits for the last of *calls*, if that is known."""
    for call in calls:
        if call.began_ps - call.idle_ps <= now_ps < call.began_ps:
            return HOST
        if call.began_ps <= now_ps < min(call.met_ps, call.ended_ps):
            return PIPELINE if call.is_message else LATE
        if call.began_ps <= now_ps < call.ended_ps:
            return "under way"
    return None


@given(flown_calls(), st.integers(0, 80), st.integers(0, 80))
def test_every_instant_of_a_wait_has_the_cause_that_it_has_then(calls, one, other):
    flown, (since_ps, until_ps) = FlownCalls(), sorted((one, other))
    for call in calls:
        flown.add(3, call, 0)

    lost = flown.losses(3, since_ps, until_ps)

    expected = Counter(cause_at(calls, now_ps) for now_ps in range(since_ps, until_ps))
    assert all(lost[cause] == expected[cause] for cause in (HOST, LATE, PIPELINE))
    assert lost[BYTES] + lost[LATENCY] == expected["under way"]
    assert min(lost.values(), default=0) >= 0


@given(flown_calls())
def test_of_a_call_that_is_waited_for_all_along_bytes_are_what_the_wire_takes(calls):
    for call in calls:
        under_way_ps = call.ended_ps - max(call.met_ps, call.began_ps)

        assert call.losses(0, 10**6)[BYTES] == min(call.wire_ps, under_way_ps)


FREE = replace(
    load_device("h100"), host_overhead_ps=0, host_boundary_ps=0, host_enqueue_ps=0, communication_share=0.0
)
"""An H100 whose host takes no time, and whose kernels do not mind collectives."""
BUSY_HOST = replace(FREE, host_overhead_ps=MILLISECOND // 1000)


def lost_by(work, device=FREE, latency="0s", **options) -> dict[str, float]:
    """Return what rank 0 loses in an iteration of *work*, which gets a buffer of 40 MB, by cause."""

    def on_rank(rank):
        dist.init_process_group("nccl")
        buffer = torch.zeros(10**7, device="cuda")
        end_iteration()
        work(rank, buffer)
        end_iteration()

    switch = Topology.switch(num_ranks=2, bandwidth="10GB/s", latency=latency)
    options = {"transport_model": "nccl", "fake": True, **options}
    report = run(on_rank, network=switch, compute=Roofline(device), **options).report
    return {own.cause: own.seconds for own in report.lost_to if own.seconds}


def small_kernels(rank, buffer):
    for _ in range(100):
        buffer[:4].mul_(2)


def one_all_reduce(rank, buffer):
    dist.all_reduce(buffer)


def small_all_reduces(rank, buffer):
    for _ in range(100):
        dist.all_reduce(buffer[:2])


def all_reduce_after_more_work_on_rank_1(rank, buffer):
    for _ in range(100 * rank):
        buffer.mul_(2)
    dist.all_reduce(buffer[:2])


def kernel_after_an_all_reduce_that_the_host_awaits(rank, buffer):
    all_reduce_after_more_work_on_rank_1(rank, buffer)
    torch.cuda.synchronize()
    buffer[:4].mul_(2)


def message_after_work(rank, buffer):
    if rank == 1:
        for _ in range(100):
            buffer.mul_(2)
        dist.send(buffer[:2], 0)
    else:
        dist.recv(buffer[:2], 1)


def computation_beside_an_all_reduce(rank, buffer):
    work = dist.all_reduce(buffer.clone(), async_op=True)
    for _ in range(1000):
        buffer.mul_(2)
    work.wait()


@pytest.mark.parametrize(
    ("work", "cause", "options"),
    [
        (small_kernels, "host", {"device": replace(FREE, host_overhead_ps=MILLISECOND)}),
        (one_all_reduce, "bytes", {}),
        (small_all_reduces, "latency", {"latency": "1ms"}),
        (all_reduce_after_more_work_on_rank_1, "late ranks", {}),
        (kernel_after_an_all_reduce_that_the_host_awaits, "late ranks", {"device": BUSY_HOST}),
        (one_all_reduce, "late ranks", {"conditions": [Straggler(1, delay="1s")]}),
        (message_after_work, "pipeline", {}),
        (computation_beside_an_all_reduce, "contention", {"device": replace(FREE, communication_share=0.5)}),
    ],
)
def test_each_cause_can_be_brought_about_alone(work, cause, options):
    lost = lost_by(work, **options)

    assert max(lost, key=lost.__getitem__) == cause
    assert lost[cause] > 0.95 * sum(lost.values())
    assert min(lost.values()) > 0


def test_bytes_are_those_of_the_links_and_the_rest_is_latency():
    lost = lost_by(one_all_reduce, latency="1ms")

    assert lost["bytes"] == pytest.approx(4e7 / 10e9)  # a ring of two sends each half twice
    assert lost["latency"] == pytest.approx(2 * 2e-3)
