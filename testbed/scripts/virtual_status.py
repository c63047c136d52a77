"""Status line of a virtual run, which goes away whenever the script writes."""

from __future__ import annotations

import time
from typing import TextIO

from testbed.output.table import seconds

_SHOWN_EVERY = 0.2  # seconds between two states
_ERASE = "\r\x1b[2K"


class StatusLine:
    """A line on a terminal, shown only at the beginning of a line.

    Args:
        what: runs, in a few words.
        terminal: a stream of this process; ranks have others in its place.
    """

    def __init__(self, what: str, terminal: TextIO) -> None:
        self._what = what
        self._terminal = terminal
        self._shown = False
        self._at_line_start = True
        self._next_at = 0.0

    def show(self, iterations: int, now_ps: int) -> None:
        """Say that rank 0 has finished so many iterations, at that virtual time in picoseconds."""
        if time.monotonic() >= self._next_at and self._at_line_start:
            self._next_at = time.monotonic() + _SHOWN_EVERY
            done = f", iteration {iterations}" if iterations else ""
            self._terminal.write(f"{_ERASE}{self._what}: {seconds(now_ps / 1e12)} of virtual time{done}")
            self._terminal.flush()
            self._shown = True

    def make_way(self, text: str = "") -> None:
        """Erase the line, as *text* is about to be written."""
        if self._shown:
            self._terminal.write(_ERASE)
            self._terminal.flush()
            self._shown = False
        if text:
            self._at_line_start = text.endswith("\n")
