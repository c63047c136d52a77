"""Values that no option takes: numbers that are not finite, text with control characters, named pipes.

Checked in one place for all commands, before any of their work.  A terminal obeys what it is told by control
characters, so names that hold some reach neither what is printed nor an error.  A named pipe without a writer
would be waited for without a word; those of ``<(command)`` have no name, and one end.
"""

from __future__ import annotations

import math
import os
import re
import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from testbed.errors import UsageError

ARGUMENTS = "arguments"
"""Of a script: they go to it as they are."""

NAMED_PIPE = "this is a named pipe; give a file, or <(command)"
"""Why the name of a pipe is refused."""


def check_values(command: TyperCommand, values: Mapping[str, Any]) -> None:
    """Check what was given for the parameters of *command*.

    Args:
        command: whose parameters these are.
        values: by name.

    Raises:
        UsageError: a number is not finite, a text holds control characters, or an input is a named pipe.
    """
    for parameter in command.params:
        given = values.get(parameter.name or "")
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar)
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{option} {value}: expected a finite number")
            if parameter.name == ARGUMENTS or not isinstance(value, str | Path):
                continue
            if has_controls(str(value)):
                raise UsageError(f"{option}: expected no control characters, got {ascii(str(value))[:200]}")
            for name in parts_of(str(value)):
                if is_named_pipe(name):
                    raise UsageError(f"{option} {name}: {NAMED_PIPE}")


def parts_of(value: str) -> list[str]:
    """Return what in *value* may be the name of a file, as in ``auto:table=FILE``."""
    return [name for name in dict.fromkeys([value, *re.split("[=,:@]", value)]) if name]


def is_named_pipe(name: str) -> bool:
    """Return whether *name* is that of a pipe, and not of one that the shell has opened (``/dev/fd/63``)."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode) and os.path.exists(os.path.realpath(name))
    except (OSError, ValueError):
        return False


def has_controls(text: str) -> bool:
    """Return whether *text* holds characters that a terminal obeys instead of showing them."""
    return any(unicodedata.category(sign) == "Cc" for sign in text)
