"""Places in the user's code: the line at which a rank is, and the condition that it is under.

The user's code is what belongs neither to us, nor to Python, nor to an installed package.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

import torch

import collectives
from collectives.virtual.isolation.ownership import LIBRARY_FOLDERS, OURS
from sim.cluster import RankThread

_ROOT = Path(collectives.__file__).parents[1]
_NOT_THE_USERS = (
    *(str(_ROOT / name) + end for name in OURS for end in ("/", ".py")),
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{Path(torch.__file__).parent}/",
)
_MAX_CODE = 80
_OF_RANKS = re.compile(r"rank|main_process|master|primary", re.IGNORECASE)


def place_of(rank_thread: RankThread) -> str:
    """Return the line of the user's code at which a rank is, or nothing where there is none on its stack.

    Such as ``train.py:12 in step: loss.backward(), under "if rank == 0" of line 11``, where what it is under
    has to do with ranks.
    """
    frames = list(users_frames(sys._current_frames().get(rank_thread.thread_id or 0)))
    if not frames:
        return ""
    for frame in frames:
        conditions = _conditions_around(frame.f_code.co_filename, frame.f_lineno)
        if conditions:
            return f"{spell_frame(frames[0])}, under {conditions[-1]}"
    return spell_frame(frames[0])


def is_under_rank_condition(frame: FrameType | None) -> bool:
    """Return whether a line of the user's that leads to *frame* is under a condition on ranks."""
    return any(_conditions_around(one.f_code.co_filename, one.f_lineno) for one in users_frames(frame))


def current_place() -> str:
    """Return the line of the user's code that has led here, such as ``train.py:12``, or nothing."""
    return place_above(sys._getframe())


def place_above(frame: FrameType | None) -> str:
    """Return the line of the user's code that has led to *frame*, such as ``train.py:12``, or nothing."""
    users = next(users_frames(frame), None)
    return "" if users is None else spell_line(users.f_code.co_filename, users.f_lineno)


@cache
def spell_line(path: str, line: int) -> str:
    """Return a line of a file, such as ``train.py:12``."""
    return f"{Path(path).name}:{line}"


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield *frame* and those that have called it, outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def users_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Return the frames of the user's code, from *frame* outwards."""
    return (one for one in frames_from(frame) if is_users(one.f_code.co_filename))


def spell_frame(frame: FrameType) -> str:
    """Return the line at which *frame* is, with its code."""
    path, line, name = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    code = linecache.getline(path, line).strip()
    code = code if len(code) <= _MAX_CODE else f"{code[:_MAX_CODE]}…"
    function = "" if name.startswith("<") else f" in {name}"
    return f"{Path(path).name}:{line}{function}" + (f": {code}" if code else "")


@cache
def is_users(path: str) -> bool:
    """Return whether *path* holds code of the user."""
    return not path.startswith(("<", *_NOT_THE_USERS)) and LIBRARY_FOLDERS.isdisjoint(Path(path).parts)


@cache
def _conditions_around(path: str, line: int) -> tuple[str, ...]:
    """Return the conditions that speak of ranks under which *line* is in its function; outer ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ()
    found: list[str] = []
    node: ast.AST | None = tree
    while node is not None:
        inner = next((child for child in ast.iter_child_nodes(node) if _covers(child, line)), None)
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.clear()
        if isinstance(node, ast.If) and inner is not node.test and _OF_RANKS.search(ast.unparse(node.test)):
            branch = "" if inner in node.body else "the else of "
            found.append(f'{branch}"if {ast.unparse(node.test)}" of line {node.lineno}')
        node = inner
    return tuple(found)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    return first is not None and last is not None and first <= line <= last
