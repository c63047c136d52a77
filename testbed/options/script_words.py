"""Words after a script: all that follows SCRIPT is the script's, in every command that takes one.

    testbed same --ranks 1,8 train.py --global-batch-size 64

Options of the command come before SCRIPT.  Some commands forgive that none but those of the output does: then
those behind it are the command's, up to the first word that is none of its options, or to ``--``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from testbed.options.outputs import CheckedCommand

END = "--"
OF_OUTPUT = ("--json", "--html", "--csv")
"""Options that every command has."""


class ScriptCommand(CheckedCommand):
    """A command whose first argument is a script, or a module with ``-m``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse *args* with what is the script's behind ``--``, where no option is looked for."""
        place = self._options(ctx, args)
        before, rest = args[:place], args[place + 1 :]
        if place < len(args) and args[place] != END and self.names_script(args[place], before):
            own, words = self.parted(ctx, before, rest)
            args = [*before, *own, args[place], END, *words]
        return super().parse_args(ctx, args)

    def names_script(self, word: str, before: Sequence[str]) -> bool:
        """Return whether the first argument, *word*, is a script, after the options *before* it."""
        return True

    def parted(
        self, ctx: typer.Context, before: Sequence[str], rest: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return which words behind the script are the command's, and which are the script's."""
        return (), rest

    def _options(self, ctx: typer.Context, args: Sequence[str]) -> int:
        """Return how many of *args*, from the first, are options of this command and their values."""
        known: dict[str, Any] = {
            name: own for own in self.get_params(ctx) for name in (*own.opts, *own.secondary_opts)
        }
        place = 0
        while place < len(args) and args[place].startswith("-") and args[place] != END:
            name, equals, _ = args[place].partition("=")
            if ctx.token_normalize_func is not None:
                name = f"--{ctx.token_normalize_func(name[2:])}" if name.startswith("--") else name
            if name not in known:
                break
            is_flag = getattr(known[name], "is_flag", False)
            place += 1 if is_flag or equals else 1 + known[name].nargs
        return min(place, len(args))


class ForgivingScriptCommand(ScriptCommand):
    """A command that takes its options behind the script, too, where only those of the output precede it."""

    def parted(
        self, ctx: typer.Context, before: Sequence[str], rest: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return as the command's what comes before ``--`` or the first word that is none of its options."""
        is_first = not any(word.startswith("-") and word not in OF_OUTPUT for word in before)
        own = self._options(ctx, rest) if is_first or END in rest else 0
        if own == len(rest) or rest[own] == END:
            return rest[:own], rest[own + 1 :]
        own = own if is_first else 0
        return rest[:own], rest[own:]


class ScriptByNameCommand(ForgivingScriptCommand):
    """A command whose first argument is a script if its name says so, else something without words."""

    def names_script(self, word: str, before: Sequence[str]) -> bool:
        """Return whether *word* is a script: a file of Python, or a module with ``-m``."""
        return (word.endswith(".py") and ":" not in word) or not {"-m", "--module"}.isdisjoint(before)
