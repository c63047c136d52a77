"""Ctrl-C: it ends a process soon, also where a script keeps the interpreter for itself."""

import signal
import subprocess
import sys
from subprocess import PIPE

import pytest

from tests.processes import not_outliving
from tests.waiting import LAST_RESORT

KEEPS_THE_LOCK = "sum(chain(map(PyDLL(None).write, [1], [b'busy\\n'], [5]), repeat(0)))"
"""Says that it is busy and goes on for good, all in C code that does not let go of the interpreter's lock."""

BUSY = """
import threading
from ctypes import PyDLL
from itertools import chain, repeat
from testbed.scripts.stopping import stopped_at_once
with stopped_at_once(watched=True):
    thread = threading.Thread(target=lambda: {body}, daemon=True)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize(
    ("body", "ended"),
    [
        pytest.param(KEEPS_THE_LOCK, -signal.SIGKILL, id="C code that keeps the lock"),
        pytest.param("print('busy', flush=True)", 0, id="nothing"),
    ],
)
def test_an_interrupt_ends_the_process_and_its_end_that_of_who_watches(body, ended):
    command = [sys.executable, "-c", BUSY.format(body=body)]
    with not_outliving(subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True)) as process:
        assert process.stdout.readline() == "busy\n"
        if ended:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LAST_RESORT)

    assert process.returncode == ended
    assert ("keeps the interpreter" in said) == bool(ended)
