"""Exceptions that one thread raises in another, which gets them when it next runs Python code."""

from __future__ import annotations

import ctypes
import threading


class _Settled(BaseException):
    """Raised and caught by `settle`."""


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise *error* in the thread *ident*; then, when the thread has it or has ended, call `settle`."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def settle() -> None:
    """Let the interpreter forget that an exception waits for a thread that will never take it.

    CPython 3.11 notes for all threads together that one of them has an exception to take.  Where that thread
    has ended, the note stays, and a thread with a trace or profile function then never gets into another
    function: its entry looks at the note again and again.  A thread that takes an exception of its own, as
    this one does here, removes the note.
    """
    try:
        raise_in(threading.get_ident(), _Settled)
        while True:
            pass  # until it comes
    except _Settled:
        return
