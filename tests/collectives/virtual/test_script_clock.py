"""Clock of a script: the virtual time of its rank, for the script alone."""

import queue
import time

import pytest
import torch

from collectives.virtual import Roofline, compute, run
from collectives.virtual.streams.gpu import current_gpu
from sim import load_device
from tests.collectives.virtual.clusters import on_gpus, script
from tests.given import switch

MILLISECOND = 10**9
H100 = Roofline("h100")
WITH_AND_WITHOUT_A_GPU = pytest.mark.parametrize("model", [None, H100], ids=["CPU", "GPU"])


def clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.time(), time.monotonic_ns() / 1e9


def work_of_the_host_and_a_kernel() -> None:
    current_gpu().host_work("pipeline", 3 * MILLISECOND)
    current_gpu().launch("kernel", 5 * MILLISECOND)


@pytest.mark.parametrize(
    ("passes", "model", "seconds"),
    [
        (lambda: compute("3ms"), None, 0.003), (lambda: time.sleep(2), None, 2),
        (work_of_the_host_and_a_kernel, H100, 0.003 + load_device("h100").host_overhead_ps / 1e12),
    ],
    ids=["computes", "sleeps", "host of a GPU"],
)  # fmt: skip
def test_a_script_reads_the_time_of_its_host(passes, model, seconds):
    def work(rank):
        began = clocks()
        passes()
        return [now - then for now, then in zip(clocks(), began, strict=True)]

    of_the_machine = time.time

    assert run(work, network=switch(2), compute=model).results == [pytest.approx([seconds] * 3, abs=1e-6)] * 2
    assert time.time is of_the_machine


def test_the_host_waits_for_an_event_that_it_synchronizes_with():
    def work(rank):
        ended = torch.cuda.Event()
        current_gpu().launch("kernel", 5 * MILLISECOND)
        ended.record()
        issued = time.perf_counter()
        ended.synchronize()
        return issued, time.perf_counter()

    issued, waited = on_gpus(work, 1).results[0]

    assert issued < 0.005 <= waited


@WITH_AND_WITHOUT_A_GPU
def test_to_sleep_is_work_of_the_host(model):
    def work(rank):
        with pytest.raises(ValueError, match="non-negative"):
            time.sleep(-1)
        time.sleep(2)
        return time.perf_counter()

    outcome = run(work, network=switch(1), compute=model)

    assert outcome.results == [2.0]
    assert outcome.times_ps == (2 * 1000 * MILLISECOND,)


def test_the_standard_library_reads_the_clock_of_the_machine():
    def work(rank):
        with pytest.raises(queue.Empty):
            queue.Queue().get(timeout=0.01)

    assert on_gpus(work, 1).times_ps == (0,)


def test_a_rank_that_sleeps_lets_the_others_come_to_its_time():
    said = []

    def work(rank):
        if rank == 0:
            while not said:
                time.sleep(0.1)
            return time.perf_counter()
        compute("250ms")
        time.sleep(0)
        said.append(rank)
        return None

    assert run(work, network=switch(2)).results[0] == pytest.approx(0.3)


@WITH_AND_WITHOUT_A_GPU
def test_a_clock_never_stands_still_so_speeds_can_be_divided_by_it(model):
    def work(rank):
        began = time.perf_counter()
        return 1 / (time.perf_counter() - began)

    outcome = run(work, network=switch(1), compute=model)

    assert outcome.results == [pytest.approx(1e9)]
    assert outcome.times_ps == (0,)


def test_who_waits_by_reading_the_clock_is_let_through_and_told():
    def work(rank):
        began = time.monotonic()
        while time.monotonic() < began + 1:
            pass

    outcome = run(work, network=switch(1), compute={"": 0})

    assert outcome.seconds == pytest.approx(1, rel=1e-3)
    assert any("reading the clock over and over" in notice for notice in outcome.report.notices)


def test_a_script_that_reads_a_clock_is_told_where_computation_takes_no_time():
    notices = run(lambda rank: time.time(), network=switch(1)).report.notices

    assert any("computation takes none" in notice and "--clock real" in notice for notice in notices)
    assert not run(lambda rank: time.time(), network=switch(1), compute={"": 0}).report.notices


@WITH_AND_WITHOUT_A_GPU
def test_a_clock_taken_by_name_and_records_of_logging_bear_virtual_time(tmp_path, model):
    text = """
    import logging
    from time import perf_counter, sleep

    class Kept(logging.Handler):
        def emit(self, record):
            times.append(record.created)

    times = []
    log = logging.Logger("training")
    log.addHandler(Kept())
    began = perf_counter()
    log.warning("begun")
    sleep(5)
    log.warning("done")
    took = perf_counter() - began
    """

    for left in run(script(tmp_path, text), network=switch(2), compute=model).results:
        begun, done = left["times"]
        assert (done - begun, left["took"]) == pytest.approx((5, 5), abs=1e-6)


def test_the_real_clock_is_there_for_who_asks_for_it_and_another_is_refused_by_name():
    before = time.time

    elapsed = run(lambda rank: (time.sleep(0.01), time.time is before)[1], network=switch(1), clock="real")

    assert (elapsed.results, elapsed.times_ps) == ([True], (0,))
    with pytest.raises(ValueError, match="no clock 'wall' for scripts: expected virtual"):
        run(lambda rank: None, network=switch(1), clock="wall")
