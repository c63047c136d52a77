"""Standstills in real time: a rank that blocks where virtual time cannot help it is named while it does.

A deadlock among ranks is found at once (`sim.cluster`).  But a rank that waits outside of them, for a socket,
a pipe, a file, or a lock that another of its threads holds, lets the whole run wait without a word.  So a
thread of the process looks how much processor time passes; where hardly any does for `SECONDS`, it says on
stderr which threads of which rank are where.  It ends nothing: what is waited for may still come.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from collectives.virtual.diagnosis.places import frames_from, spell_frame, users_frames
from collectives.virtual.isolation.turns import OwnThreads
from sim.cluster import Cluster, RankThread

SECONDS = 10.0
"""For so long nothing moves before a word is said."""
_LOOKS = 10
"""So often the processor time is read meanwhile."""
_HARDLY_ANY = 0.02
"""The share of one processor below which nothing moves."""
_DEBUGGERS = frozenset({"bdb", "pdb", "code", "cmd"})


@contextmanager
def standstill_named(cluster: Cluster) -> Iterator[None]:
    """Say on stderr where the ranks of *cluster* are, whenever nothing moves while the body runs."""
    is_over, heard = threading.Event(), sys.stderr
    watching = threading.Thread(
        target=_watch, args=(cluster, is_over, heard, SECONDS), name="standstill", daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()


def _watch(cluster: Cluster, is_over: threading.Event, heard: TextIO, seconds: float) -> None:
    step, worked, num_quiet = seconds / _LOOKS, time.process_time(), 0
    while not is_over.wait(step):
        before, worked = worked, time.process_time()
        num_quiet = num_quiet + 1 if worked - before < _HARDLY_ANY * step else 0
        said = describe(cluster) if num_quiet == _LOOKS else ""
        if said:
            print(
                f"testbed: nothing has moved for {seconds:g} s of real time\n{said}", file=heard, flush=True
            )


def describe(cluster: Cluster) -> str:
    """Return where the threads are that do not wait in virtual time; nothing if there are none."""
    frames = sys._current_frames()
    lines: list[str] = []
    for rank_thread in cluster.ranks:
        if rank_thread.thread_id is None or rank_thread.has_finished or rank_thread.is_waiting:
            continue
        for name, ident in _threads_of(cluster, rank_thread):
            frame = frames.get(ident or 0)
            if frame is not None and not _is_debugged(frame):
                lines.append(f"  rank {rank_thread.rank}{name}: {_spell(frame)}")
    return "\n".join(lines)


def _threads_of(cluster: Cluster, rank_thread: RankThread) -> Iterator[tuple[str, int | None]]:
    """Yield the threads of a rank: what they are called, and by what Python knows them."""
    yield "", rank_thread.thread_id
    threads: OwnThreads | None = cluster.shared.get(OwnThreads, {}).get(rank_thread.rank)
    for own, thread in () if threads is None else threads.started:
        yield f", thread {thread.name}{' (outside Python)' if own.is_outside else ''}", thread.ident


def _is_debugged(frame: FrameType | None) -> bool:
    return any(one.f_globals.get("__name__") in _DEBUGGERS for one in frames_from(frame))


def _spell(frame: FrameType) -> str:
    """Return where *frame* is: the user's line, and the innermost one of a library that has not come back."""
    users = next(users_frames(frame), None)
    if users is None:
        return spell_frame(frame)
    return spell_frame(users) + ("" if users is frame else f", in {spell_frame(frame)}")
