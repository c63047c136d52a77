"""Scripts by ``testbed run``: what it says of them, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from pathlib import Path

from typer.main import get_command

from benchmarks.bugs.pairs import Pair
from benchmarks.bugs.verdict import Said, Verdict
from testbed.cli import app

ERROR = "testbed: error: "
_TESTBED = get_command(app)
_CHECKS = {
    "replicas": ["--check", "replicas"],
    "orders": ["--orders", "all"],
    "races": ["--check", "races"],
}


def verdict_of_testbed(pair: Pair) -> Verdict:
    """Return the verdict on ``testbed``, with the check that the pair asks for."""
    return Verdict.on(pair, said_by_testbed(pair, pair.wrong), said_by_testbed(pair, pair.right))


def said_by_testbed(pair: Pair, script: Path) -> Said:
    """Return what ``testbed`` says of one half of *pair*."""
    exit_code, printed, errors = _run(command(pair, script))
    if exit_code == 0:
        mistakes = json.loads(printed).get("mistakes", [])
        return Said(bool(mistakes), "\n".join(mistakes), "ends")
    text = errors[errors.index(ERROR) + len(ERROR) :] if ERROR in errors else errors
    ending = "deadlock" if text.startswith("deadlock") else "error"
    return Said(True, f"{text.rstrip()}\n{_traceback(errors)}", ending)


def command(pair: Pair, script: Path) -> list[str]:
    """Return the arguments of ``testbed`` that run a half of *pair*."""
    if pair.check == "same":
        return ["same", "--json", "--ranks", "1,2,4", str(script)]
    check = _CHECKS.get(pair.check, [])
    device = ["--compute", "h100"] if pair.needs_gpus else []
    return ["run", "--json", "--ranks", str(pair.num_ranks), *device, *check, str(script)]


def _run(arguments: list[str]) -> tuple[int, str, str]:
    """Return the exit code of ``testbed`` with *arguments*, and what it writes to stdout and stderr."""
    printed, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of torch, for what is wrong on purpose
        try:
            _TESTBED.main(arguments, prog_name="testbed")
            exit_code = 0
        except SystemExit as ended:
            exit_code = ended.code if isinstance(ended.code, int) else 1
    return exit_code, printed.getvalue(), errors.getvalue()


def _traceback(text: str) -> str:
    """Return the places in the traceback before the error, without what the script has printed."""
    return "\n".join(line for line in text.splitlines() if line.lstrip().startswith('File "'))
