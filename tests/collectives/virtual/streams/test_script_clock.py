"""Clock of a script: the host's virtual time, for the script alone."""

from __future__ import annotations

import queue
import time

import pytest

from collectives.virtual import run
from collectives.virtual.computation.roofline import Roofline
from collectives.virtual.streams.gpu import current_gpu
from tests.collectives.virtual.clusters import script, switch
from tests.collectives.virtual.group_calls.gpus import GPU, on_gpus

MILLISECOND = 10**9


def test_a_script_reads_the_time_of_its_host():
    def work(rank):
        began = time.perf_counter(), time.time(), time.monotonic_ns()
        current_gpu().host_work("pipeline", 3 * MILLISECOND)
        current_gpu().launch("kernel", 5 * MILLISECOND)
        return time.perf_counter() - began[0], time.time() - began[1], time.monotonic_ns() - began[2]

    counter, seconds, nanoseconds = on_gpus(work, 1).results[0]

    overhead_ps = GPU.host_overhead_ps
    assert nanoseconds == (3 * MILLISECOND + overhead_ps) // 1000
    assert counter == pytest.approx(nanoseconds / 1e9)
    assert seconds == pytest.approx(nanoseconds / 1e9, abs=1e-6)


def test_to_sleep_is_work_of_the_host():
    def work(rank):
        time.sleep(2)
        return time.perf_counter()

    outcome = on_gpus(work, 1)

    assert outcome.results == [2.0]
    assert outcome.times_ps == (2 * 1000 * MILLISECOND,)


def test_to_sleep_for_less_than_nothing_is_refused_as_elsewhere():
    def work(rank):
        with pytest.raises(ValueError, match="non-negative"):
            time.sleep(-1)

    on_gpus(work, 1)


def test_the_standard_library_reads_the_clock_of_the_machine():
    def work(rank):
        with pytest.raises(queue.Empty):
            queue.Queue().get(timeout=0.01)

    assert on_gpus(work, 1).times_ps == (0,)


def test_a_clock_taken_by_name_in_a_script_is_virtual(tmp_path):
    text = """
    from time import perf_counter, sleep

    began = perf_counter()
    sleep(1)
    took = perf_counter() - began
    """

    outcome = run(script(tmp_path, text), network=switch(2), compute=Roofline(GPU))

    assert [left["took"] for left in outcome.results] == [1.0, 1.0]


def test_without_a_gpu_and_after_the_run_the_clock_is_the_machine_s():
    before = time.time

    elapsed = run(lambda rank: (time.sleep(0.01), time.time is before)[1], network=switch(1)).results
    on_gpus(lambda rank: None, 1)

    assert elapsed == [True]
    assert time.time is before
