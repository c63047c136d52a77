"""Withheld output of ranks: shown once it is known that the attempt counts in which they wrote it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

from collectives.virtual.isolation.per_rank import Streams


class Withheld:
    """Output of the ranks of one attempt.

    Args:
        streams: returns the standard output and error of a rank; None: all share the process's.
    """

    def __init__(self, streams: Callable[[int], Streams] | None) -> None:
        self._streams = streams
        self._held: list[tuple[TextIO, str]] | None = []

    def of(self, rank: int) -> Streams:
        """Return what *rank* is to write to."""
        out, err = (sys.stdout, sys.stderr) if self._streams is None else self._streams(rank)
        return cast(TextIO, _Stream(self, out)), cast(TextIO, _Stream(self, err))

    def write(self, stream: TextIO, text: str) -> None:
        """Write to *stream*, once all is released."""
        if self._held is None:
            stream.write(text)
        else:
            self._held.append((stream, text))

    def release(self) -> None:
        """Write what was held back, in order, and hold back nothing any more."""
        held, self._held = self._held or [], None
        for stream, text in held:
            stream.write(text)


class _Stream:
    """A stream that is held back; all but writing is that of the stream itself."""

    def __init__(self, withheld: Withheld, stream: TextIO) -> None:
        self._withheld = withheld
        self._stream = stream

    def write(self, text: str) -> int:
        self._withheld.write(self._stream, text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
