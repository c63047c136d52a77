"""Output of the ranks of a virtual run: of one rank as it is, or of all, each line with its rank."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

from testbed.errors import UsageError

ALL = "all"
NOBODY = "none"
_LONGEST = 1 << 16


class PrefixedLines(io.TextIOBase):
    """A text stream that hands on whole lines, each behind *prefix*, so that lines of ranks do not mix."""

    def __init__(self, target: TextIO, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._unfinished = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the target."""
        return self._target.encoding

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return that of the target."""
        return self._target.fileno()

    def write(self, text: str) -> int:
        """Hand on the lines that are complete."""
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        if len(self._unfinished) > _LONGEST:
            lines.append(self._unfinished)
            self._unfinished = ""
        if lines:
            self._target.write("".join(f"{self._prefix}{line}\n" for line in lines))
        return len(text)

    def finish(self) -> None:
        """Hand on what has no end of line."""
        if self._unfinished:
            self.write("\n")


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
