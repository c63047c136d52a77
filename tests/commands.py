"""Commands of `testbed` called in this process: how they end, what they print, and their JSON."""

import json
import shlex
from typing import Any

from typer import Typer
from typer.testing import CliRunner, Result

from testbed.cli import app


def called(line: str, *words: object, code: int = 0, program: Typer = app) -> Result:
    """Return what a command printed that ended with this exit code; *words* follow those of the line."""
    result = CliRunner().invoke(program, [*shlex.split(line), *map(str, words)])
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def reported(line: str, *words: object, code: int = 0) -> dict[str, Any]:
    """Return the document that a command prints with ``--json``."""
    command, _, rest = line.partition(" ")
    return json.loads(called(f"{command} --json {rest}", *words, code=code).stdout)


def rows_of(line: str, *words: object) -> list[dict[str, Any]]:
    """Return the rows of the document that a command prints with ``--json``."""
    return reported(line, *words)["rows"]


def in_one_line(text: str) -> str:
    """Return *text* without the line breaks that a terminal puts into it."""
    return " ".join(text.split())
