"""Processes that a test starts: none outlives it, however it ends."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def not_outliving(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill *process* after the body, if it still runs then, and close its streams."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def is_running(pid: int) -> bool:
    """Return whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
