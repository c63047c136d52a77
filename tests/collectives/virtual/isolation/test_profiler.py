"""The profiler of each rank: its own operations, at virtual times, beside collectives."""

import json

import pytest
import torch
import torch.autograd.profiler
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from collectives.errors import NotSupportedError
from collectives.virtual import run
from sim.errors import RankError
from sim.units import SECOND
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch

MICROSECOND = SECOND // 10**6


def test_every_rank_profiles_its_own_operations_in_virtual_time(tmp_path):
    def work(rank):
        dist.init_process_group("nccl")
        rank_thread().charge_ps(7 * MICROSECOND)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
            with record_function(f"on rank {rank}"):
                product = torch.ones(2, 3) @ torch.ones(3, 4)
            rank_thread().charge_ps(5 * MICROSECOND * rank)
            call = dist.all_reduce(product, async_op=True)
            call.wait()
            waited_ps = rank_thread().now_ps()
            torch.relu(product)
        profiled.export_chrome_trace(str(tmp_path / f"{rank}.json"))
        return profiled.events(), waited_ps / MICROSECOND - 7

    results = run(work, network=switch(2)).results

    for rank, (events, end_us) in enumerate(results):
        by_name = {event.name: event for event in events}
        assert f"on rank {rank}" in by_name
        assert f"on rank {1 - rank}" not in by_name
        assert [list(shape) for shape in by_name["aten::mm"].input_shapes] == [[2, 3], [3, 4]]
        reduced = by_name["nccl:all_reduce"]
        assert reduced.is_async
        assert reduced.input_shapes == [[2, 4]]
        assert (reduced.time_range.start, reduced.time_range.end) == pytest.approx(
            (5 * rank, end_us), abs=1e-3
        )
        assert by_name["aten::relu"].time_range.start == pytest.approx(end_us, abs=1e-3)
        assert by_name["aten::mm"].time_range.end <= 5 * rank
        trace = json.loads((tmp_path / f"{rank}.json").read_text())
        assert {span["pid"] for span in trace["traceEvents"]} == {rank}


def test_a_profile_has_the_cycles_that_its_schedule_asks_for_and_a_notice():
    def work(rank):
        dist.init_process_group("gloo")
        cycles = []
        plan = schedule(wait=1, warmup=1, active=2)
        count = lambda done: cycles.append(sum(event.name == "gloo:broadcast" for event in done.events()))  # noqa: E731
        with profile(
            activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=count, acc_events=True
        ) as profiled:
            for _ in range(8):
                dist.broadcast(torch.ones(3), 0)
                profiled.step()
        return cycles

    outcome = run(work, network=switch(2))

    assert outcome.results == [[2, 4], [2, 4]]
    assert any("torch.profiler shows each rank its own operations" in text for text in outcome.report.notices)


def test_what_only_the_profiler_of_the_process_knows_is_refused():
    def work(rank):
        with torch.autograd.profiler.profile() as profiled:
            torch.ones(3)
        profiled.kineto_results.experimental_event_tree()

    with pytest.raises(RankError, match="profile with torchrun") as caught:
        run(work, network=switch(2))
    assert isinstance(caught.value.__cause__, NotSupportedError)
