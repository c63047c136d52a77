"""Threads beside a rank's calls: those of Gloo, and that the process they are in ends as it should."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import collectives.transports.background as background
from collectives.transports.gloo_threads import interrupt_nobody

OPEN_STORE = """
import threading
from datetime import timedelta
import torch.distributed as dist
import collectives.transports.background as background
from collectives.transports.background import ENDING, start_aside
from collectives.transports.watchdog import Watchdog

store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=timedelta(seconds=60))
asks = threading.Event()
"""
ASKS_ALL_THE_TIME = """
def ask():
    while not ENDING.is_set():
        store.check(["failed"])
        asks.set()

start_aside(ask, "asking")
asks.wait()
"""
WAITS_FOR_LONG = """
background._SECONDS = 0.1
other = dist.TCPStore("127.0.0.1", store.port, is_master=False)
start_aside(lambda: store.get("awaited"), "waiting", lambda: other.set("awaited", "now"))
"""
WAITS_UNDER_A_WATCHDOG = """
def ask():
    asks.set()
    store.wait(["failed"], timedelta(seconds=0.5))

watchdog = Watchdog(ask, lambda: None, interval=1e-6)
watchdog.__enter__()  # and the process ends within this wait
asks.wait()
"""
TASK_AT_THE_END = """
background._SECONDS = 0.1
other = dist.TCPStore("127.0.0.1", store.port, is_master=False)
background.ShortTask(lambda: None, lambda: None).join(60)  # its thread is idle, or has yet to be
background.ShortTask(lambda: store.get("awaited"), lambda: other.set("awaited", "now"))
"""
FORKS_BESIDE_AN_IDLE_THREAD = """
import os, time

background.ShortTask(lambda: None, lambda: None).join(60)
while not background._IDLE:
    time.sleep(0.001)
if (child := os.fork()) == 0:
    done = threading.Event()
    background.ShortTask(done.set, lambda: None).join(60)
    os._exit(0 if done.is_set() else 1)
assert os.waitpid(child, 0)[1] == 0, "a child gave a task to a thread of its parent"
"""


@pytest.mark.costly
@pytest.mark.parametrize(
    "thread",
    [
        ASKS_ALL_THE_TIME,
        WAITS_FOR_LONG,
        WAITS_UNDER_A_WATCHDOG,
        TASK_AT_THE_END,
        FORKS_BESIDE_AN_IDLE_THREAD,
    ],
)
def test_a_process_ends_well_while_a_thread_is_at_the_store(thread):
    ended = subprocess.run(
        [sys.executable, "-c", OPEN_STORE + thread], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr


def test_short_tasks_keep_their_threads():
    """A thread serves one task after another; tasks at once have one each, of which some are kept."""
    threads, background._IDLE[:] = [], []
    for count in (1, 40, 40, 1):
        may_go = threading.Event()

        def run(may_go=may_go):
            may_go.wait()
            threads.append(threading.get_ident())

        before = len(threads)
        tasks = [background.ShortTask(run, may_go.set) for _ in range(count)]
        tasks[0].join(0.001)
        assert len(threads) == before
        may_go.set()
        for task in tasks:
            task.join(60)
        assert len(set(threads[before:])) == len(threads[before:]) == count

    assert threads[-1] in threads[:-1], "a thread was started although others were idle"


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policies")
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("gloo_tcp_loop", "SCHED_OTHER", "SCHED_BATCH"),
        ("gloo_tcp_loop", "SCHED_IDLE", "SCHED_IDLE"),
        ("another", "SCHED_OTHER", "SCHED_OTHER"),
    ],
)
def test_policy(name, before, after):
    """Those of Gloo that have the usual policy get the one that interrupts nobody."""
    ready, over = threading.Event(), threading.Event()

    def run():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        os.sched_setscheduler(0, getattr(os, before), os.sched_param(0))
        ready.set()
        over.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(10)
        interrupt_nobody()
        assert thread.native_id is not None
        assert os.sched_getscheduler(thread.native_id) == getattr(os, after)
    finally:
        over.set()
        thread.join()
