"""Threads that a rank starts: the rank's own, one at a time, with its groups, environment and clock."""

import _thread
import asyncio
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from collectives.errors import CollectiveError
from collectives.virtual import run
from collectives.virtual.diagnosis import standstill
from sim.errors import RankError
from sim.units import SECOND
from tests.collectives.virtual.clusters import in_group, rank_thread
from tests.given import switch


def test_a_pool_of_threads_communicates_and_computes_for_its_rank():
    def work(rank):
        def task(number):
            tensor = torch.full((3,), float(dist.get_rank() + number))
            dist.all_reduce(tensor)
            return os.environ["RANK"], tensor[0].item()

        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(task, range(4)))
        return results, rank_thread().now_ps() > 0

    outcome = in_group(work, 2)

    for rank, (results, took_time) in enumerate(outcome.results):
        assert results == [(str(rank), 1.0 + 2 * number) for number in range(4)]
        assert took_time


def test_a_thread_that_loads_ahead_into_a_queue_is_waited_for():
    def work(rank):
        batches = queue.Queue(maxsize=2)

        def load():
            for step in range(5):
                batches.put(torch.full((2,), step + rank, device="cuda"))
            batches.put(None)

        loader = threading.Thread(target=load, daemon=True)
        loader.start()
        values = [int(batch[0]) for batch in iter(batches.get, None)]
        loader.join()
        return values, loader.is_alive()

    assert run(work, network=switch(2)).results == [([0, 1, 2, 3, 4], False), ([1, 2, 3, 4, 5], False)]


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
def test_a_thread_computes_while_another_waits_for_a_call_and_a_lock_keeps_it_out(transport_model):
    """Rank 0 sums and computes for 3 s at once, and rank 1 comes after 2 s; a lock makes that 5 s."""

    def work(rank, is_locked):
        dist.init_process_group()
        lock = threading.Lock() if is_locked else contextlib.nullcontext()

        def compute():
            with lock:
                time.sleep(3 if rank == 0 else 0)

        thread = threading.Thread(target=compute)
        time.sleep(2 * rank)
        with lock:
            thread.start()
            dist.all_reduce(torch.ones(1))
        thread.join()
        return round(rank_thread().now_ps() / SECOND)

    def seconds(is_locked):
        outcome = run(lambda rank: work(rank, is_locked), network=switch(2), transport_model=transport_model)
        return outcome.results[0]

    assert (seconds(False), seconds(True)) == (3, 5)


def test_a_rank_ends_when_its_threads_and_pools_have_done_their_work_but_for_daemons():
    pools, done = [], []

    def work(rank):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        threading.Thread(target=lambda: done.append(os.environ["RANK"])).start()
        pool = ThreadPoolExecutor(2)  # which nobody shuts down
        pools.append(pool)
        assert pool.submit(dist.get_rank).result() == rank
        pool.submit(done.append, str(rank))

    before = threading.active_count()
    in_group(work, 3)

    assert sorted(done) == ["0", "0", "1", "1", "2", "2"]
    assert threading.active_count() == before
    assert not any(thread.is_alive() for pool in pools for thread in pool._threads)


def test_a_wait_that_only_time_could_end_takes_that_virtual_time():
    def work(rank):
        never = threading.Event()
        threading.Thread(target=never.wait, daemon=True).start()
        return never.wait(2.0), rank_thread().now_ps()

    assert run(work, network=switch(2)).results == [(False, 2 * SECOND)] * 2


@pytest.mark.parametrize("is_joined", [False, True])
def test_threads_of_a_rank_that_all_wait_in_vain_are_an_error_at_once_and_end_with_it(is_joined):
    threads = []

    def work(rank):
        waiting = threading.Thread(target=threading.Event().wait)
        threads.append(waiting)
        waiting.start()
        if is_joined:
            waiting.join()

    with pytest.raises(RankError, match="every thread of this rank waits for another") as caught:
        run(work, network=switch(2))

    assert isinstance(caught.value.__cause__, CollectiveError)
    for thread in threads:
        thread.join()


def test_threads_end_with_a_run_that_fails_while_they_wait():
    def work(rank):
        if rank == 1:
            raise ValueError("fails")
        thread = threading.Thread(target=lambda: dist.barrier())
        thread.start()
        thread.join()

    before = threading.active_count()
    with pytest.raises(RankError, match="rank 1 raised ValueError"):
        in_group(work, 2)

    assert threading.active_count() == before


def _in_a_pipe(read: int) -> None:
    os.read(read, 1)


def _in_a_process(read: int) -> None:
    subprocess.run(["cat"], stdin=read, stdout=subprocess.DEVNULL, check=True)


def _in_an_event_loop(read: int) -> None:
    loop = asyncio.new_event_loop()
    loop.add_reader(read, loop.stop)
    loop.run_forever()
    loop.close()


@pytest.mark.parametrize("block", [_in_a_pipe, _in_a_process, _in_an_event_loop])
def test_a_thread_that_blocks_outside_python_gives_its_turn_away(block):
    def work(rank):
        read, write = os.pipe()
        blocking = threading.Thread(target=block, args=(read,), daemon=True)
        blocking.start()
        items = queue.Queue()
        written = []

        def write_all():
            while True:
                written.append(items.get())
                items.task_done()

        threading.Thread(target=write_all, daemon=True).start()
        total = torch.ones(1)
        dist.all_reduce(total)
        items.put(total.item())
        items.join()
        was_written, was_alive = list(written), blocking.is_alive()
        os.write(write, b"\n")
        os.close(write)
        blocking.join()
        os.close(read)
        return was_written, was_alive, blocking.is_alive()

    assert in_group(work, 2).results == [([2.0], True, False)] * 2


def test_a_thread_that_comes_back_from_outside_runs_when_the_turn_is_its_own():
    def work(rank):
        read, write = os.pipe()
        came = []
        waits = threading.Thread(target=lambda: came.append(os.read(read, 1)))
        waits.start()
        waits.is_alive()  # lets it run until it blocks
        os.write(write, b"x")
        for _ in range(20):
            sum(range(100_000))  # in which Python lets other threads run
        meanwhile = list(came)
        waits.join()
        os.close(read)
        os.close(write)
        return meanwhile, came

    assert run(work, network=switch(1)).results == [([], [b"x"])]


def test_a_run_ends_with_a_daemon_still_outside_of_python():
    read, write = os.pipe()

    def work(rank):
        waits = threading.Thread(target=os.read, args=(read, 1), daemon=True)
        waits.start()
        return waits.is_alive()

    assert run(work, network=switch(2)).results == [True, True]
    os.write(write, b"xx")  # with which they end
    os.close(write)


def test_a_rank_that_blocks_outside_python_is_named_while_nothing_moves(monkeypatch):
    read, write = os.pipe()
    heard = []

    class Stderr:
        def write(self, text):
            heard.append(text)

        def flush(self):
            os.write(write, b"x")

    monkeypatch.setattr(standstill, "SECONDS", 0.05)
    monkeypatch.setattr(sys, "stderr", Stderr())

    def work(rank):
        if rank == 1:
            os.read(read, 1)

    run(work, network=switch(2))

    for said in ("nothing has moved for 0.05 s", "rank 1: test_own_threads.py:", "os.read(read, 1)"):
        assert said in "".join(heard)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_rank_really_waits_for_a_lock_that_a_thread_of_no_rank_has(kind):
    """As those which move what a loader's workers load."""

    def work(rank: int) -> list[str]:
        said, taken = [], _thread.allocate_lock()
        lock = getattr(threading, kind)()
        taken.acquire()

        def hold() -> None:
            with lock:
                taken.release()
                time.sleep(0.02)
                said.append("held")

        threading.Thread(target=threading.Event().wait, daemon=True).start()
        _thread.start_new_thread(hold, ())
        taken.acquire()
        with lock:
            said.append("taken")
        return said

    assert in_group(work, 2).results == [["held", "taken"]] * 2
