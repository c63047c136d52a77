"""Commands in the shell: of what kind each output is, none takes the place of an input, and a script's words.

Outputs are checked in one place for all commands, before any of their work (`CheckedCommand`).  An option
with a path is named here, as an output with its suffixes or as an input; the tests look that none is left
out.

All that follows SCRIPT is the script's, in every command that takes one (`ScriptCommand`):

    testbed same --ranks 1,8 train.py --global-batch-size 64

Options of the command come before SCRIPT.  Some commands forgive that none but those of the output does: then
those behind it are the command's, up to the first word that is none of its options, or to ``--``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from collectives.garbage import collected_seldom
from testbed.errors import UsageError, reporting_errors
from testbed.options.project import take
from testbed.options.values import check_values, parts_of
from testbed.output.figure import check_plot
from testbed.output.folder import check_writable

JSON = (".json",)
PLOT = (
    ".png", ".svg", ".pdf", ".svgz", ".eps", ".ps", ".pgf", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".gif",
)  # fmt: skip
OUTPUTS: Mapping[str, Sequence[str]] = {
    "--trace": JSON,
    "--plot": PLOT,
    "--html": (".html", ".htm"),
    "--csv": (".csv",),
    "--predictions": JSON,
    "--record-routing": JSON,
    "show --plot": (".svg",),
    "bench --output": JSON,
    "profile --output": JSON,
    "export --output": (".xml", ".json", ".conf", ".csv", ""),
    "synthesize --output": JSON,
    "calibrate --output": (".toml",),
}
"""Suffixes of files, by option, or by command and option where commands differ."""
FOLDERS = ("calibrate --output",)
"""Outputs that may be a folder."""
STDOUT = Path("-")
"""What stands for no file."""
INPUTS = ("--from", "--table", "--calibration", "--assumptions", "--measured")
"""Options with the path of a file that is read."""


PANELS = ("Arguments", "Question", "Goodput", "Software", "GPU", "Faults", "Checks", "Workers", "Output")
"""Headings of options, in their order."""


class CheckedCommand(TyperCommand):
    """A command that begins only where its values can be, and its outputs are no inputs and of their kind."""

    def get_help_option_names(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the options that show the help: in any context the same, as click keeps the first one."""
        return ["-h", "--help"]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Read *args*: an option of one value has no second one, what follows a script is the script's."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, count in Counter(given).items():
            one_value = parameter.param_type_name == "option" and not parameter.multiple
            if count > 1 and one_value and not getattr(parameter, "is_flag", False):
                reporting_errors(_refuse_second)(parameter.opts[0], count)
        ctx.default_map = reporting_errors(take)(self.name, {str(parameter.name) for parameter in given})
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Check what was given, and carry the command out."""
        reporting_errors(check_values)(self, ctx.params)
        reporting_errors(check_outputs)(self, ctx.params)
        return super().invoke(ctx)

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the options under headings: the question, what it is answered with, the output."""
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panels.setdefault(panel_of(self.name or "", parameter), []).append(record)
        for name, records in panels.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _refuse_second(option: str, count: int) -> None:
    raise UsageError(f"{option} is given {count} times, and takes one value; give it once")


def panel_of(command: str, parameter: Any) -> str:
    """Return the heading of *parameter*."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    named = getattr(parameter, "rich_help_panel", None)
    if named is None and suffixes_of(command, parameter.opts[0]) is not None:
        return "Output"
    return named or "Question"


def suffixes_of(command: str, option: str) -> Sequence[str] | None:
    """Return the suffixes of what *option* of *command* names; None if it is no output."""
    return OUTPUTS.get(f"{command} {option}", OUTPUTS.get(option))


def check_outputs(command: TyperCommand, values: Mapping[str, Any]) -> None:
    """Check what was given as outputs of *command*.

    Args:
        command: whose options these are.
        values: of all its parameters, by name.

    Raises:
        UsageError: an output has a suffix that its kind does not have, cannot be written, or is an input or
            another output, or what draws pictures or pages is not installed.
    """
    taken = dict.fromkeys(_inputs(command, values), "an input")
    for option, path, suffixes in _outputs(command, values):
        is_file = path.is_file() or not path.exists()
        if suffixes and is_file and path.suffix.lower() not in suffixes:
            raise UsageError(
                f"{option} {path}: expected a name that ends in {', '.join(filter(None, suffixes))}"
            )
        if suffixes is PLOT:
            check_plot(path)
        elif option == "--html":
            from testbed.result.page import check_page

            check_page(path)
        elif is_file or f"{command.name} {option}" not in FOLDERS:
            check_writable(path)
        for other, what in taken.items():
            if is_file and _are_same(path, other):
                raise UsageError(f"{option} {path}: this is {what}, {other}; name another file")
        taken[path] = "the output of another option"


def _outputs(command: TyperCommand, values: Mapping[str, Any]) -> Iterator[tuple[str, Path, Sequence[str]]]:
    for parameter in command.params:
        value = values.get(parameter.name or "")
        suffixes = suffixes_of(command.name or "", parameter.opts[0])
        if suffixes is not None and isinstance(value, Path) and value not in (STDOUT, parameter.default):
            yield parameter.opts[0], value, suffixes


def _inputs(command: TyperCommand, values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that are named in a value of another parameter, or in a part: ``auto:table=FILE``."""
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(value, Path) and suffixes_of(command.name or "", parameter.opts[0]) is not None:
            continue
        for word in value if isinstance(value, list | tuple) else [value]:
            if isinstance(word, str | Path):
                yield from (Path(name) for name in parts_of(str(word)) if os.path.isfile(name))


def _are_same(first: Path, second: Path) -> bool:
    """Return whether both are one file, whatever its names, or will be."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


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


class RunCommand(ScriptCommand):
    """A command that carries out one run: what it imports, and what ranks make, lives as long as it does."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Carry the command out; imports and report are looked through as seldom as the run."""
        with collected_seldom():
            return super().invoke(ctx)


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
