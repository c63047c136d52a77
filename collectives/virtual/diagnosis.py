"""What became of a run that goes no further: who waits where in the user's code, and for whom."""

from __future__ import annotations

import linecache
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import torch

import collectives
from collectives.virtual.group import VirtualWorld
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster
from sim.rank_thread import RankThread
from sim.units import format_time

_ROOT = Path(collectives.__file__).parents[1]
_NOT_THE_USERS = tuple(
    f"{folder}/"
    for folder in {
        *(str(_ROOT / package) for package in ("collectives", "ddp", "sim", "testbed")),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(torch.__file__).parent),
    }
)
_MAX_CODE = 80


class Diagnosis:
    """Says more of the ranks of a cluster than the cluster knows.

    Args:
        cluster: whose ranks run torch.
        iterations: those that its ranks have finished.
    """

    def __init__(self, cluster: Cluster, iterations: Iterations) -> None:
        self.cluster = cluster
        self.iterations = iterations

    def remark(self, rank_thread: RankThread) -> str:
        """Return in which iteration a rank is, and where in the user's code."""
        said = []
        if any(self.iterations.finished):
            said.append(f", in iteration {self.iterations.finished[rank_thread.rank]}")
        place = "" if rank_thread.has_finished else place_of(rank_thread)
        if place:
            said.append(f", at {place}")
        return "".join(said)

    def fate(self, rank: int) -> str:
        """Return what became of a rank that does not wait where others wait for it."""
        rank_thread = self.cluster.ranks[rank]
        if rank_thread.is_dead:
            return f"killed at {format_time(rank_thread.now_ps())}"
        if rank_thread.has_finished:
            return f"finished at {format_time(rank_thread.now_ps())}, without calling it"
        return "waits for something else"

    def explain(self, report: str) -> str:
        """Return *report*, of a deadlock, and for each group whom its ranks wait for in vain."""
        world = VirtualWorld.of(self.cluster)
        return "\n  ".join([report, *world.verdicts(self.fate)])


def place_of(rank_thread: RankThread) -> str:
    """Return the line of the user's code at which a rank is, or nothing where there is none on its stack.

    Such as ``train.py:12 in step: loss.backward()``.
    """
    frame = sys._current_frames().get(rank_thread.thread_id or 0)
    place = users_frame(frame)
    if place is None:
        return ""
    path, line = place.f_code.co_filename, place.f_lineno
    code = linecache.getline(path, line).strip()
    code = code if len(code) <= _MAX_CODE else f"{code[:_MAX_CODE]}…"
    name = place.f_code.co_name
    function = "" if name == "<module>" else f" in {name}"
    return f"{Path(path).name}:{line}{function}" + (f": {code}" if code else "")


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's code, from *frame* outwards, if there is one."""
    return next((one for one in _outwards(frame) if _is_users(one.f_code.co_filename)), None)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@cache
def _is_users(path: str) -> bool:
    """Return whether *path* belongs neither to us, nor to Python, nor to an installed package."""
    return not path.startswith(("<", *_NOT_THE_USERS))
