"""Scripts that commands are given: their names, and the errors that they end with."""

from __future__ import annotations

import traceback
from pathlib import Path

from testbed.errors import LaunchError, UsageError


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
