"""Runs an ordinary training script, unmodified, in this process, until enough of it was recorded.

The script sees what it would see under ``python script.py``; where torchrun has not started us, also the
variables that torchrun sets for one process.  When the recording is full, the next forward pass raises
`EnoughRecorded`, which is no `Exception`, so that the script's own handlers let it through and its
``finally`` blocks run.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import LaunchError, UsageError
from testbed.scripts.launch import free_port

if TYPE_CHECKING:
    from ddp.recording import Recording


class EnoughRecorded(BaseException):
    """Ends a script that has been recorded long enough."""


class ScriptError(LaunchError):
    """The script failed; its own traceback has been printed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def observe_script(script: Path, arguments: Sequence[str], recording: Recording) -> None:
    """Run *script* with *arguments* inside *recording*.

    Raises:
        UsageError: there is no such file.
        ScriptError: it raised, or ended with another code than 0.
        KeyboardInterrupt: it was interrupted.
    """
    if not script.is_file():
        raise UsageError(f"{script}: there is no such script")
    recording.on_full = _stop
    try:
        with _as_main(script, arguments), recording:
            runpy.run_path(str(script), run_name="__main__")
    except EnoughRecorded:
        _leave_group()
    except SystemExit as end:
        if end.code not in (None, 0):
            if not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
            code = end.code if isinstance(end.code, int) else 1
            raise ScriptError(f"{script} ended with exit code {code}", code) from None
    except Exception as error:
        print_traceback(error, script)
        raise ScriptError(f"{script} failed: {type(error).__name__}: {error}", 1) from None


def _stop() -> None:
    raise EnoughRecorded


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Let arguments, import path and environment be those of ``python script.py`` under torchrun."""
    argv, path, environment = sys.argv, sys.path[:], dict(os.environ)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    if "RANK" not in os.environ:
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= {**alone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.environ.clear()
        os.environ.update(environment)


def print_traceback(error: BaseException, script: str | Path) -> None:
    """Print the script's part of the traceback, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


def _leave_group() -> None:
    """Leave the process group that a script which was ended early has left open."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
