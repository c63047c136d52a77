"""Ctrl-C: it ends a process soon, also where a script keeps the interpreter for itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

BUSY = """
import threading
from testbed.scripts.stopping import stopped_at_once
with stopped_at_once(watched=True):
    thread = threading.Thread(target=lambda: (print("busy", flush=True), {body}), daemon=True)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        pytest.param("sum(range(10**12))", -signal.SIGKILL, id="C code that keeps the lock"),
        pytest.param("None", 0, id="nothing"),
    ],
)
def test_an_interrupt_ends_the_process_and_its_end_that_of_who_watches(body: str, ended: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    if ended:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)

    _, said = process.communicate(timeout=60)

    assert process.returncode == ended
    assert ("keeps the interpreter" in said) == bool(ended)
