"""End of this process soon after Ctrl-C, whatever a script does.

Ctrl-C raises `KeyboardInterrupt` in the main thread, which unwinds the ranks.  Two cases need more:

- A rank that does not return to the interpreter, such as one in a system call, or that swallows its end: a
  thread ends the process a second later.
- A rank in C code that keeps the interpreter's lock: no line of Python runs in this process until it is
  through.  Only the C half of the handler does, which writes to a pipe; so at a terminal another process,
  which reads it, kills this one.  Without a terminal ``kill -TERM`` ends it at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from testbed.errors import INTERRUPTED

_GRACE_SECONDS = 1.0
_LOCKED_SECONDS = 3.0
"""How long the interpreter has time to notice an interrupt, before this process is killed."""

_WATCH = """
import os, select, signal, sys
parent, grace = int(sys.argv[1]), float(sys.argv[2])
interrupt = bytes([signal.SIGINT])
while (number := os.read(0, 1)) not in (b"", interrupt):
    pass
while number:
    if not select.select([0], [], [], grace)[0]:
        os.write(2, b"testbed: interrupted; killed, as a rank keeps the interpreter\\n")
        os.kill(parent, signal.SIGKILL)
        break
    number = os.read(0, 64)
"""


@contextmanager
def stopped_at_once(watched: bool | None = None) -> Iterator[None]:
    """Let Ctrl-C end this process soon, even where a rank does not return to the interpreter.

    A process that ignores it, such as a job in the background, goes on doing so; SIGTERM ends it.

    Args:
        watched: whether another process helps; None: where there is a terminal.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    if watched is None:
        watched = sys.stdin.isatty() or sys.stderr.isatty()

    waiting, interrupted = os.pipe()
    over = False

    def leave() -> None:  # takes no lock, as whoever is interrupted may hold it
        os.read(waiting, 1)
        time.sleep(_GRACE_SECONDS)
        if not over:
            os.write(2, b"testbed: interrupted\n")
            os._exit(INTERRUPTED)

    def interrupt(number: int, frame: Any) -> None:
        os.write(interrupted, b"!")
        raise KeyboardInterrupt

    threading.Thread(target=leave, daemon=True).start()
    before = signal.signal(signal.SIGINT, interrupt)
    with ExitStack() as stack:
        if watched:
            stack.enter_context(_watched_from_outside())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            over = True
            os.write(interrupted, b".")


@contextmanager
def _watched_from_outside() -> Iterator[None]:
    """Have a process that kills this one where it does not end after an interrupt."""
    numbers, written = os.pipe()
    os.set_blocking(written, False)
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(os.getpid()), str(_LOCKED_SECONDS)]
    watcher = subprocess.Popen(command, stdin=numbers, start_new_session=True)
    os.close(numbers)
    before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(written)
        watcher.wait()
