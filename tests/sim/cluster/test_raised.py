"""Exceptions raised in other threads, and threads with a profile function after one that nobody took."""

import subprocess
import sys

import pytest

NOBODY_TAKES_IT = """\
import _thread, ctypes, time

lock = _thread.allocate_lock()
lock.acquire()
ident = _thread.start_new_thread(lock.acquire, ())  # runs no Python code, before or after
while not ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyError)):
    time.sleep(0.001)  # until it is known to the interpreter
lock.release()
while _thread._count():
    time.sleep(0.001)
"""
PROFILED = """
import sys, threading

def work():
    sys.setprofile(lambda frame, event, argument: None)
    called()

def called():
    print("called")

thread = threading.Thread(target=work, daemon=True)
thread.start()
thread.join(30)
"""


@pytest.mark.parametrize(
    "settled",
    [
        "from sim.cluster.raised import settle; settle()",
        "from collectives.catalogue.bounds import _take_back; _take_back(_thread.get_ident())",
    ],
)
def test_a_profiled_thread_gets_into_functions_after_an_exception_that_nobody_took(settled):
    script = f"{NOBODY_TAKES_IT}\n{settled}\n{PROFILED}"

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "called\n", ended.stderr
