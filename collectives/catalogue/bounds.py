"""Bounds on users' code: how long a file may take, how much memory, and what it may not end or print to.

A file that names an algorithm is code that its user trusts: these bounds catch mistakes, not attacks.
While its code runs on a thread,

    time         a step may take `STEP_SECONDS`, an import `IMPORT_SECONDS`, by the clock
    memory       the process may grow by `MAX_GROWTH`
    the end      SystemExit, GeneratorExit, a KeyboardInterrupt that the file itself raises, and os._exit are
                 faults like any other; a true Ctrl-C still interrupts
    the output   what it prints goes to the standard error, so that results stay readable

A watchdog thread looks every `TICK_SECONDS` and raises `_OutOfBounds` on the thread whose code is over its
bounds (``PyThreadState_SetAsyncExc``, as CPython's documentation has it), again and again until it ends: that
stops any loop of Python code.  A main thread that is inside C code, such as ``time.sleep``, gets a SIGINT
besides; where the process ignores that, as a job in the background does, it heeds the watchdog's alone.
C code that keeps the interpreter's lock, such as a regular expression, is not stopped: the watchdog cannot
run.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from dis import opmap
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

STEP_SECONDS = 10.0
"""That a program may take until its next step."""

IMPORT_SECONDS = 60.0
"""That a file may take to be imported, with what it imports itself."""

MAX_GROWTH = 2 << 30
"""Bytes by which the process may grow meanwhile."""

TICK_SECONDS = 0.1
_IDLE_TICKS = 20
_SIGNAL_AFTER = 2.0  # seconds over its time until a main thread inside C code is sent a signal


class _OutOfBounds(BaseException):
    """Raised by the watchdog on the thread that runs a user's code."""


class OutOfBoundsError(Exception):
    """A user's code has taken too long, or too much memory, or has wanted to end the process."""


@dataclass(eq=False)
class _Section:
    """Users' code on a thread.

    Attributes:
        deadline: when its time is over.
        seconds: that it may take.
        nbytes: of the process when it was first seen; None: nobody has looked.
        reason: why it has to end; empty: it may go on.
        signalled: its thread was sent a signal.
        deaf: the process ignored SIGINT when it began.
        over: nothing is raised on its thread any more.
    """

    deadline: float
    seconds: float
    nbytes: int | None = None
    reason: str = ""
    signalled: bool = False
    deaf: bool = False
    over: bool = False

    def heed(self, number: int, frame: object) -> None:
        """Be interrupted by the watchdog, and by nobody else."""
        if self.signalled:
            raise KeyboardInterrupt

    def excess(self, now: float, nbytes: int) -> str:
        """Return what it has too much of, if anything."""
        if self.nbytes is None:
            self.nbytes = nbytes
        if now > self.deadline:
            return f"it has taken more than {self.seconds:g} s; does it end?"
        if nbytes - self.nbytes > MAX_GROWTH:
            return f"it has taken more than {MAX_GROWTH >> 20} MiB of memory; does it end?"
        return ""


class _Watchdog:
    """The sections that are under way, by thread, and the thread that looks at them."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.sections: dict[int, _Section] = {}
        self._watching = False
        self._exit = os._exit
        self._has_taken_over = False

    def enter(self, seconds: float) -> _Section | None:
        """Begin a section of this thread; None if it is inside one."""
        ident = _thread.get_ident()
        if ident in self.sections:
            return None
        section = _Section(monotonic() + seconds, seconds)
        if ident == threading.main_thread().ident and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            section.deaf = True
            signal.signal(signal.SIGINT, section.heed)
        with self.lock:
            if not self.sections:
                self._take_over()
            self.sections[ident] = section
            if not self._watching:
                self._watching = True
                _thread.start_new_thread(self._watch, ())
        return section

    def leave(self, section: _Section) -> None:
        """End *section*, of this thread; nothing is raised on it from then on."""
        ident = _thread.get_ident()
        with self.lock:
            self.sections.pop(ident, None)
            if not self.sections:
                self._give_back()
            if section.reason:
                _take_back(ident)
        if section.signalled:
            sleep(TICK_SECONDS)  # for the signal, if it comes late
        if section.deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        section.over = True

    def forget(self) -> None:
        """Begin anew in a process that was forked: its only thread runs what it ran before."""
        self.lock = _thread.allocate_lock()
        self._watching = False
        ident = _thread.get_ident()
        kept = {thread: own for thread, own in self.sections.items() if thread == ident}
        self.sections = kept
        if not kept:
            self._give_back()

    def _watch(self) -> None:
        """Look at all sections again and again, until there have been none for a while."""
        idle = 0
        while idle < _IDLE_TICKS:
            sleep(TICK_SECONDS)
            now, nbytes = monotonic(), _memory_of_process()
            with self.lock:
                idle = 0 if self.sections else idle + 1
                for ident, section in self.sections.items():
                    section.reason = section.reason or section.excess(now, nbytes)
                    if section.reason:
                        _raise_on(ident, _OutOfBounds)
                    main = threading.main_thread().ident
                    late = section.reason and now > section.deadline + _SIGNAL_AFTER
                    if late and ident == main and not section.signalled:
                        section.signalled = True
                        signal.pthread_kill(ident, signal.SIGINT)
                if idle >= _IDLE_TICKS:
                    self._watching = False

    def _take_over(self) -> None:
        """Keep users' code from ending the process, and from printing to the standard output."""
        self._exit, os._exit = os._exit, self._refuse_to_exit
        sys.stdout = _Diverted(sys.stdout)
        self._has_taken_over = True

    def _give_back(self) -> None:
        if not self._has_taken_over:
            return
        self._has_taken_over = False
        os._exit = self._exit
        if isinstance(sys.stdout, _Diverted):
            sys.stdout = sys.stdout.original

    def _refuse_to_exit(self, status: int) -> NoReturn:
        if _thread.get_ident() in self.sections:
            raise SystemExit(status)
        self._exit(status)


class _Diverted:
    """The standard output for all threads but those that run users' code, which write to the error."""

    def __init__(self, original: Any) -> None:
        self.original: Any = original.original if isinstance(original, _Diverted) else original

    def __getattr__(self, name: str) -> Any:
        users = _thread.get_ident() in _WATCHDOG.sections
        return getattr(sys.stderr if users else self.original, name)


_WATCHDOG = _Watchdog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCHDOG.forget)


def within(seconds: float, function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Return what *function*, users' code, returns when it is called on this thread.

    Args:
        seconds: that it may take.
        function: what is called.
        args: it is called with.
        options: it is called with.

    Raises:
        OutOfBoundsError: it went on, took too much memory, or wanted to end the process.
        Exception: as it raised.
        KeyboardInterrupt: somebody has pressed Ctrl-C.
    """
    section = _WATCHDOG.enter(seconds)
    if section is None:
        return function(*args, **options)

    error: BaseException | None = None
    try:
        result = function(*args, **options)
    except BaseException as raised:  # whatever it is, the watchdog is called off first
        error = raised
    while not section.over:  # what the watchdog raises late may come anywhere up to there
        try:
            _WATCHDOG.leave(section)
        except _OutOfBounds:
            pass
        except KeyboardInterrupt as interrupt:
            error = interrupt

    if section.reason:
        raise OutOfBoundsError(section.reason) from None
    if error is None:
        return result
    if isinstance(error, Exception) or _is_interrupt(error):
        raise error
    said = f": {error}" if str(error) else ""
    raise OutOfBoundsError(f"it wanted to end the process by {type(error).__name__}{said}") from None


def _is_interrupt(error: BaseException) -> bool:
    """Return whether *error* is a KeyboardInterrupt that no line of code has raised."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return True
    return innermost.tb_frame.f_code.co_code[innermost.tb_lasti] != opmap["RAISE_VARARGS"]


def _raise_on(ident: int, error: type[BaseException]) -> None:
    """Raise *error* on a thread as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


class _TakenBack(BaseException):
    """Raised and caught by `_take_back`."""


def _take_back(ident: int) -> None:
    """Take back what was to be raised on this thread, *ident*, and was not yet.

    Another exception takes its place, and is caught: CPython 3.11 forgets one that is only withdrawn, but not
    that there is one, and a thread with a trace or profile function then gets into no function any more.
    """
    try:
        _raise_on(ident, _TakenBack)
        while True:
            pass  # until it comes
    except _TakenBack:
        return


def _memory_of_process() -> int:
    """Return the bytes of memory that the process has; 0 where nobody says."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
