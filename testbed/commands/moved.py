"""Commands and options that moved to programs of a checkout."""

from __future__ import annotations

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.outputs import CheckedCommand

MOVED = {
    "claims": "python -m benchmarks.lab.claims",
    "demo": "python examples/demo.py",
    "validate --shaped": "python -m benchmarks.lab.shaped",
    "validate --incast": "python -m benchmarks.lab.shaped --incast",
    "validate --training": "python -m benchmarks.lab.truth --training",
    "validate --scripts": "python -m benchmarks.lab.truth --scripts",
}
"""What was a command or an option of one, and the program of a checkout that it is."""


class MovedCommand(CheckedCommand):
    """A command some of whose options moved, or all of it: they say where to."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read *args*, of which none has moved."""
        reporting_errors(_check_moved)(ctx.info_name or "", args)
        return super().parse_args(ctx, args)


def claims() -> None:
    """Say where the command is."""


def demo() -> None:
    """Say where the command is."""


def _check_moved(command: str, args: list[str]) -> None:
    for name in (command, *(f"{command} {arg}" for arg in args)):
        if name in MOVED:
            raise UsageError(f"{name} moved: {MOVED[name]}, in a checkout")
