"""Output of the ranks of a virtual run, of one as it is or of all by lines, and the status beside it."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from testbed.errors import UsageError
from testbed.output.table import seconds

ALL = "all"
NOBODY = "none"
_LONGEST = 1 << 16
_SHOWN_EVERY = 0.2  # seconds between two states
_ERASE = "\r\x1b[2K"


class PrefixedLines(io.TextIOBase):
    """A text stream that hands on whole lines, each behind *prefix*, so that lines of ranks do not mix."""

    def __init__(self, target: TextIO, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._unfinished = ""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Hand on the lines that are complete."""
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if len(self._unfinished) > _LONGEST:
            lines.append(self._unfinished)
            self._unfinished = ""
        for line in lines:
            self._target.write(f"{self._prefix}{line}\n")
        return len(text)

    def finish(self) -> None:
        """Hand on what has no end of line."""
        if self._unfinished:
            self.write("\n")

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the target."""
        return self._target.encoding

    def fileno(self) -> int:
        """Return that of the target."""
        return self._target.fileno()


class RankOutput:
    """The streams of every rank.

    Args:
        heard: ``all``, ``none``, or the rank that is heard.
        num_ranks: of how many.
        as_json: stdout is for a document, so what ranks print there goes to stderr.
        before_write: called before a rank that is heard writes, with what it writes, and at the end.

    Raises:
        UsageError: there is no such rank.
    """

    def __init__(
        self, heard: str, num_ranks: int, *, as_json: bool = False, before_write: Callable[[str], None] | None
    ) -> None:
        if heard not in (ALL, NOBODY) and not (heard.isdecimal() and int(heard) < num_ranks):
            raise UsageError(f"--output {heard}: expected all, none, or a rank from 0 to {num_ranks - 1}")
        self._hears_all = heard == ALL
        self._heard = int(heard) if heard.isdecimal() else None
        self._before_write = before_write
        self._targets = [sys.stderr if as_json else sys.stdout, sys.stderr]
        if before_write is not None:
            self._targets = [cast(TextIO, _Announced(target, before_write)) for target in self._targets]
        self._prefixed: list[PrefixedLines] = []
        self._silence: TextIO | None = None

    def of(self, rank: int) -> tuple[TextIO, TextIO]:
        """Return the standard output and error of *rank*."""
        if self._hears_all:
            streams = [PrefixedLines(target, f"[rank {rank}] ") for target in self._targets]
            self._prefixed += streams
            return cast(TextIO, streams[0]), cast(TextIO, streams[1])
        if rank == self._heard:
            return self._targets[0], self._targets[1]
        if self._silence is None:
            self._silence = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return self._silence, self._silence

    def is_heard(self, rank: int) -> bool:
        """Return whether the output of *rank* is shown."""
        return self._hears_all or rank == self._heard

    @contextmanager
    def debugged(self) -> Iterator[None]:
        """Hear a rank from where it enters the debugger on, by ``breakpoint`` or pdb; the prompt names it."""
        import pdb

        set_trace = pdb.set_trace

        def heard(*, header: str | None = None, **_: Any) -> None:
            if sys.stdout is self._silence:
                sys.stdout, sys.stderr = self._targets
            debugger = pdb.Pdb()
            if not self._hears_all:  # there every line names its rank
                debugger.prompt = f"(Pdb, rank {os.environ.get('RANK')}) "
            if header is not None:
                debugger.message(header)
            debugger.set_trace(sys._getframe(1))

        pdb.set_trace = heard
        try:
            yield
        finally:
            pdb.set_trace = set_trace

    def close(self) -> None:
        """Hand on unfinished lines; nothing may be written any more."""
        if self._before_write is not None:
            self._before_write("")
        for stream in self._prefixed:
            stream.finish()
        if self._silence is not None:
            self._silence.close()


class _Announced:
    """A stream that says before it is written to."""

    def __init__(self, target: TextIO, before_write: Callable[[str], None]) -> None:
        self._target = target
        self._before_write = before_write

    def write(self, text: str) -> int:
        self._before_write(text)
        return self._target.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


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
