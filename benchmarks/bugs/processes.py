"""Scripts as real processes over Gloo: what plain torch does, and what it says.

A launcher that has torch imported is started once, and forks a process for each rank, with the environment
that torchrun gives: so many pairs take minutes and not hours.  As torchrun does, it ends all ranks soon
after the first has failed.  Torch's default time-out is half an hour; here it is `TIMEOUT_SECONDS`, so a
script that hangs is known by the error of a time-out, or by not ending at all.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from benchmarks.bugs.pairs import ROOT, Pair
from benchmarks.bugs.verdict import Said, Verdict

TIMEOUT_SECONDS = 5
"""Of torch's process groups."""

ENDS = "ends"
HANGS = "hangs"
FAILS = "fails"
ABORTS = "aborts"

_TIMED_OUT = ("Timed out", "timed out", "wait timeout", "Timeout", "timeout after", "exceeded timeout")


class Processes:
    """Runs scripts as processes; a context manager, which starts and ends the launcher."""

    def __enter__(self) -> Processes:
        self._launcher = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bugs.launcher"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._launcher.stdin is not None
        self._launcher.stdin.close()
        self._launcher.wait()

    def verdict(self, pair: Pair, debug: str) -> Verdict:
        """Return the verdict on torch with so much *debug*: ``OFF``, ``INFO`` or ``DETAIL``."""
        return Verdict.on(pair, self.said(pair, pair.wrong, debug), self.said(pair, pair.right, debug))

    def said(self, pair: Pair, script: Path, debug: str) -> Said:
        """Return what torch says of one half of *pair*."""
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        job = {"script": str(script), "num_ranks": pair.num_ranks, "debug": debug, "timeout": TIMEOUT_SECONDS}
        print(json.dumps(job), file=self._launcher.stdin, flush=True)
        return _said(json.loads(self._launcher.stdout.readline()))


def _said(ended: dict[str, object]) -> Said:
    """Return what is to be said of ranks that have *ended* so, as the launcher reports it."""
    rank, code, text = ended["first_failed"], ended["code"], str(ended["text"])
    if rank is None:
        return Said(False, "", ENDS) if code == 0 else Said(True, "", HANGS)
    if any(word in text for word in _TIMED_OUT):
        ending = HANGS
    else:
        ending = ABORTS if isinstance(code, int) and code < 0 else FAILS
    line = _error_line(text)
    if not line and isinstance(code, int) and code < 0:
        line = f"killed by {signal.Signals(-code).name}"
    return Said(True, f"{line}\n{text}\nfirst to fail: rank {rank}", ending)


def _error_line(text: str) -> str:
    """Return the line of *text* in which a rank says what has failed."""
    lines = [line.strip() for line in text.splitlines()]
    whats = [line for line in lines if line.startswith("what():")]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    return next(iter([*whats, *errors[-1:]]), "")
