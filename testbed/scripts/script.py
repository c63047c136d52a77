"""Scripts that commands are given: their names, the errors that they end with, and those that are recorded.

A script that is recorded runs unmodified in this process and sees what it would see under ``python
script.py``; where torchrun has not started us, also the variables that torchrun sets for one process.  When
the recording is full, the next forward pass raises `EnoughRecorded`, which is no `Exception`, so that the
script's own handlers let it through and its ``finally`` blocks run.
"""

from __future__ import annotations

import os
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


class ScriptError(LaunchError):
    """The script failed; its own traceback has been printed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check_script(script: str | Path, *, is_module: bool = False) -> None:
    """Check that there is such a file; modules are looked for when they are to run.

    Raises:
        UsageError: there is none.
    """
    if not is_module and not Path(script).is_file():
        what = "is a folder; name the script in it" if Path(script).is_dir() else "there is no such script"
        raise UsageError(f"{script}: {what}")


def print_traceback(error: BaseException, script: str | Path) -> None:
    """Print the script's part of the traceback, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


class EnoughRecorded(BaseException):
    """Ends a script that has been recorded long enough."""


def observe_script(path: Path, arguments: Sequence[str], recording: Recording) -> None:
    """Run the script at *path* with *arguments* inside *recording*.

    Raises:
        UsageError: there is no such file.
        ScriptError: it raised, or ended with another code than 0.
        KeyboardInterrupt: it was interrupted.
    """
    check_script(path)
    from collectives.torch_backend.script import Script
    from testbed.scripts.loopback import listening_on_loopback

    recording.on_full = _stop
    try:
        script = Script(path, arguments)
        with _environment_of_one_process(), listening_on_loopback(), script.as_main() as main, recording:
            script.run(main)
    except EnoughRecorded:
        _leave_group()
    except SystemExit as end:
        if not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else 1
        raise ScriptError(f"{path} ended with exit code {code}", code) from None
    except Exception as error:
        print_traceback(error, path)
        raise ScriptError(f"{path} failed: {type(error).__name__}: {error}", 1) from None


def _stop() -> None:
    raise EnoughRecorded


@contextmanager
def _environment_of_one_process() -> Iterator[None]:
    """Let the environment be that of one process under torchrun, unless torchrun has set it."""
    before = dict(os.environ)
    if "RANK" not in os.environ:
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= {**alone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _leave_group() -> None:
    """Leave the process group that a script which was ended early has left open."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
