"""Outcomes of one input: read, refused in the project's own words, or a failure.

Time and memory have bounds.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from testbed.errors import exit_code_of
from tools.mutation.target import Target

SECONDS = 5.0
"""Of CPU time that an input may take; reading takes milliseconds."""
MEMORY = 3 * 2**30
"""Bytes of address space that an input may take beyond what the process has."""
SEEDS = Path(__file__).parent / "seeds"


class _OutOfTimeError(BaseException):
    """An input takes longer than it may."""


@dataclass(frozen=True)
class Failure:
    """An input that was neither read rightly nor refused.

    Attributes:
        target: what read it.
        content: the input.
        kind: ``traceback``, ``hang``, ``wrong answer`` or ``warning``.
        evidence: where it failed, and what was said.
        place: by which failures are told apart.
    """

    target: str
    content: bytes
    kind: str
    evidence: str
    place: str

    def keep(self) -> Path:
        """Write the input beside the seeds, which the tests read again; return where."""
        name = hashlib.sha256(self.content).hexdigest()[:12]
        path = SEEDS / f"{self.target}-{name}.json"
        content = {"target": self.target, "kind": self.kind, "content": self.content.decode("latin-1")}
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def drawn(target: Target, seed: int, number: int) -> bytes:
    """Return input *number* of *seed*, the same each time."""
    return target.draw(Random(f"{seed}/{target.name}/{number}"))


def outcome_of(target: Target, content: bytes) -> Failure | str:
    """Return ``read`` or ``refused``, or what is wrong."""
    try:
        with _within(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            target.read(content)
    except _OutOfTimeError as error:
        return _failure(target, content, "hang", error)
    except AssertionError as error:
        return _failure(target, content, "wrong answer", error)
    except Exception as error:
        if exit_code_of(error) is not None and not isinstance(error, OSError):
            return "refused"
        return _failure(target, content, "traceback", error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _failure(target, content, "traceback", error)
    return "read"


def limit_memory() -> None:
    """Let this process take `MEMORY` more than it has, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _failure(target: Target, content: bytes, kind: str, error: BaseException) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tools/mutation/outcome" not in frame.filename]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in ours[:-4:-1])
    name = type(error).__name__
    evidence = f"{where}: {name}: {str(error)[:400]}"
    return Failure(target.name, content, kind, evidence, f"{target.name}, {kind}, {where}, {name}")


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Interrupt the body after so many *seconds* of CPU time."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
