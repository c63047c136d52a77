"""Threads of Gloo interrupt no others, and no other thread is touched."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from collectives.transports.gloo_threads import interrupt_nobody


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policies")
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("gloo_tcp_loop", "SCHED_OTHER", "SCHED_BATCH"),
        ("gloo_tcp_loop", "SCHED_IDLE", "SCHED_IDLE"),
        ("another", "SCHED_OTHER", "SCHED_OTHER"),
    ],
)
def test_policy(name: str, before: str, after: str) -> None:
    """Those of Gloo that have the usual policy get the one that interrupts nobody."""
    ready, over = threading.Event(), threading.Event()

    def run() -> None:
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
