"""A target of inputs: something that reads what users give, how inputs for it are drawn, and its oracle."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from testbed.errors import exit_code_of

SECONDS = 5.0
"""Of CPU time that an input may take; reading takes milliseconds."""
MEMORY = 3 * 2**30
"""Bytes of address space that an input may take beyond what the process has."""


@dataclass(frozen=True)
class Target:
    """Something that reads.

    Attributes:
        name: of the target.
        draw: returns an input, most of which are wrong somewhere.
        read: reads it; raises one of the project's own errors where it is refused, and AssertionError
            where what is accepted does not hold (see "right or refused" in docs/security.md).
        weight: how many of its inputs are drawn beside those of the others.
    """

    name: str
    draw: Callable[[Random], bytes]
    read: Callable[[bytes], None]
    weight: int = 1

    def drawn(self, seed: int, number: int) -> bytes:
        """Return input *number* of *seed*, the same each time."""
        return self.draw(Random(f"{seed}/{self.name}/{number}"))

    def outcome_of(self, content: bytes) -> str:
        """Return ``read`` or ``refused``; whatever else happens is raised, with the input in a note."""
        try:
            with _within_bounds():
                self.read(content)
        except BaseException as error:
            is_ours = isinstance(error, Exception) and exit_code_of(error) is not None
            if is_ours and not isinstance(error, OSError):
                return "refused"
            error.add_note(f"{self.name} was given {content!r}")
            raise
        return "read"


class OutOfTimeError(BaseException):
    """An input takes longer than it may."""


@contextmanager
def _within_bounds() -> Iterator[None]:
    """Interrupt the body after `SECONDS` of CPU time, and let it have `MEMORY` and no more."""

    def interrupt(number, frame):
        raise OutOfTimeError

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY, limits[1]))
    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def text_of(content: bytes) -> str:
    """Return *content* as text, as a command line or a file read by text has it."""
    return content.decode("utf-8", "replace")


def same(one: object, other: object, what: str) -> None:
    """Assert that two readings are the same; *what* was compared."""
    assert one == other, f"{what}: {str(one)[:300]} and {str(other)[:300]}"
