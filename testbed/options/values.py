"""Values that no option takes: numbers that are not finite, and text with control characters.

Checked in one place for all commands, before any of their work.  A terminal obeys what it is told by control
characters, so names that hold some reach neither what is printed nor an error.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from testbed.errors import UsageError

ARGUMENTS = "arguments"
"""Of a script: they go to it as they are."""


def check_values(command: TyperCommand, values: Mapping[str, Any]) -> None:
    """Check what was given for the parameters of *command*.

    Args:
        command: whose parameters these are.
        values: by name.

    Raises:
        UsageError: a number is not finite, or a text holds control characters.
    """
    for parameter in command.params:
        given = values.get(parameter.name or "")
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar)
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{option} {value}: expected a finite number")
            if parameter.name != ARGUMENTS and isinstance(value, str | Path) and has_controls(str(value)):
                raise UsageError(f"{option}: expected no control characters, got {ascii(str(value))[:200]}")


def has_controls(text: str) -> bool:
    """Return whether *text* holds characters that a terminal obeys instead of showing them."""
    return any(unicodedata.category(sign) == "Cc" for sign in text)
