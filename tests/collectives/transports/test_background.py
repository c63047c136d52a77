"""Tests of threads beside a rank's calls: that the process they are in ends as it should."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

OPEN_STORE = """
import threading
from datetime import timedelta
import torch.distributed as dist
from collectives.transports.background import ENDING, start_aside

store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=timedelta(seconds=60))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OPEN_STORE + textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.costly
def test_a_process_ends_well_while_a_thread_asks_the_store() -> None:
    ended = run("""
        def ask():
            while not ENDING.is_set():
                store.check(["failed"])
                has_asked.set()

        has_asked = threading.Event()
        start_aside(ask, "asking")
        has_asked.wait()
    """)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.costly
def test_a_thread_that_waits_for_long_is_released() -> None:
    ended = run("""
        import collectives.transports.background as background
        background._SECONDS = 0.1
        other = dist.TCPStore("127.0.0.1", store.port, is_master=False)
        start_aside(lambda: store.get("awaited"), "waiting", lambda: other.set("awaited", "now"))
    """)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.costly
def test_a_wait_that_was_watched_lets_the_process_end() -> None:
    ended = run("""
        from collectives.transports.watchdog import Watchdog

        def ask():
            asks.set()
            store.wait(["failed"], timedelta(seconds=0.5))

        asks = threading.Event()
        watchdog = Watchdog(ask, lambda: None, interval=1e-6)
        watchdog.__enter__()  # and the process ends within this wait
        asks.wait()
    """)

    assert ended.returncode == 0, ended.stderr
