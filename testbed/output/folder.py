"""Command and versions that repeat a result, and places where files can be written."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Literal

from testbed import __version__
from testbed.errors import UsageError

SCHEMA = 1

Method = Literal["proved", "measured", "simulated", "closed form"]


def command_line() -> str:
    """Return the command as the user gave it, without the path of the program."""
    import shlex

    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def versions() -> dict[str, str | None]:
    """Return the versions that results depend on, without importing any of them."""
    found: dict[str, str | None] = {"collective-testbed": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "simpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def check_writable(path: Path) -> None:
    """Check, before any work is done, that a file can be written at *path*.

    Raises:
        UsageError: it cannot; the message says why.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder")
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK) or (
        path.is_file() and not os.access(folder, os.W_OK)
    ):
        raise UsageError(f"cannot write {path}: no permission")
