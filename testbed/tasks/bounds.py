"""Bounds of a command's work: Ctrl-C, SIGTERM and a time limit end it in order, and what is there is given.

found = []
with bounded(time_limit) as stop:
    for point in points:
        found.append(evaluate(point))
stop.check(found, len(points), "point")
return stop.ended(result_of(found))
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING

from testbed.errors import CheckError, Terminated, UsageError

if TYPE_CHECKING:
    from testbed.result import Result


_AT_ONCE = 1e-6
"""Seconds to a timer that is overdue: none would disarm it."""


class TimeUp(KeyboardInterrupt):
    """The time limit of a command has come, that of the `Stop` which it has as its argument."""


@dataclass
class Stop:
    """How work has ended.

    Attributes:
        limit: seconds that it may take; None: as many as it does.
        by: what has ended it; None: nothing, it is whole.
        done: how much of it is there.
    """

    limit: float | None = None
    by: KeyboardInterrupt | None = None
    done: str = field(default="", init=False)

    @property
    def said(self) -> str:
        """What has ended it, and after how much, in words; empty where it is whole."""
        if self.by is None:
            return ""
        if isinstance(self.by, TimeUp):
            return f"stopped by --time-limit {self.limit:g}{self.done}"
        return f"{'terminated' if isinstance(self.by, Terminated) else 'interrupted'}{self.done}"

    def check(self, found: Sized, number: int, noun: str) -> None:
        """Check that of *number* things, each a *noun*, some were *found*, or the work is whole.

        Raises:
            CheckError: none was within the time limit.
            KeyboardInterrupt: none was before that.
        """
        if self.by is None:
            return
        self.done = f" after {len(found)} of {number} {noun}{'' if number == 1 else 's'}"
        if isinstance(self.by, TimeUp) and not found:
            raise CheckError(f"nothing was found within --time-limit {self.limit:g}: give it more seconds")
        if not found:
            raise self.by

    def ended(self, result: Result) -> Result:
        """Return *result*, which says so where it is a part.

        Raises:
            Interrupted: it is, and not by a time limit.
        """
        from testbed.result import Interrupted, Text

        if self.by is None:
            return replace(result, body={**result.body, "interrupted": False})
        so_far = replace(
            result,
            answer=f"{self.said[0].upper()}{self.said[1:]}. {result.answer}",
            body={**result.body, "interrupted": True, "stopped": self.said},
            parts=[*result.parts, Text([f"This is a part: {self.said}."])],
        )
        if isinstance(self.by, TimeUp):
            return so_far
        raise Interrupted(so_far, self.by) from None


@contextmanager
def bounded(limit: float | None = None) -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM or a limit of so many seconds end the body in order, and note which of them did.

    The limit of an outer body goes on meanwhile, and if it comes, ends both.

    Raises:
        UsageError: the limit is no time, or this is not the main thread, which alone is told of it.
    """
    stop = Stop(limit)
    with ExitStack() as stack:
        stack.enter_context(terminated_in_order())
        if limit is not None:
            stack.enter_context(_within(limit, stop))
        try:
            yield stop
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, TimeUp) and interrupt.args != (stop,):
                raise
            stop.by = interrupt


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Let SIGTERM end the body by `Terminated`, once: it is ignored while what was begun is ended."""
    if not _is_main() or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _within(limit: float, stop: Stop) -> Iterator[None]:
    """End the body by `TimeUp` after so many seconds, as Ctrl-C would; a timer that is due sooner stays."""
    if not 0 < limit < threading.TIMEOUT_MAX:
        raise UsageError(f"--time-limit {limit:g}: expected seconds above 0")
    if not _is_main():
        raise UsageError("a time limit ends the main thread; leave it out in another one")

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeUp(stop)

    left, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < left <= limit:
        yield
        return
    due = time.monotonic() + left
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), _AT_ONCE), interval)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
