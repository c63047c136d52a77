"""The command `testbed`: the names of the commands, and what each does in a sentence.

A command is imported when it is called, and imports what it needs when it runs, so that `testbed --help`
starts at once and `testbed verify` without torch.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from collectives.docstrings import docstring_of
from testbed.errors import UsageError, reporting_errors
from testbed.options import ALSO

NAMES = (
    "verify", "show", "export", "bench", "scale", "plan", "run", "same", "fuzz", "profile", "tune",
    "simulate", "synthesize", "network", "calibrate", "validate", "compare", "env", "doctor",
)  # fmt: skip
_SUMMARY = r'^def {}\(.*?^    """(.*?\.)$'


def _summary(name: str) -> str:
    """Return the first paragraph of the docstring of the command *name*, which is not imported for that."""
    source = Path(__file__).with_name("commands").joinpath(f"{name}.py").read_text(encoding="utf-8")
    found = re.search(_SUMMARY.format(name), source, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return " ".join(found[1].split())


COMMANDS = {name: _summary(name) for name in NAMES}
"""What each command does, in their order."""
MOVED = {
    "claims": "python -m benchmarks.lab.claims",
    "demo": "python examples/demo.py",
    "validate --shaped": "python -m benchmarks.lab.shaped",
    "validate --incast": "python -m benchmarks.lab.shaped --incast",
    "validate --training": "python -m benchmarks.lab.truth --training",
    "validate --scripts": "python -m benchmarks.lab.truth --scripts",
}
"""What was a command or an option of one, and the program of a checkout that it is."""


class Commands(TyperGroup):
    """Commands of which names and summaries are known; the one that is called is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that *args* name, and what is left of them."""
        reporting_errors(_refuse_moved)(args)
        name, known, rest = super().resolve_command(ctx, args)
        return name, known and imported(known.name), rest


app = typer.Typer(
    name="testbed",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": lambda name: ALSO.get(name, name),
    },
)


@cache
def imported(name: str) -> TyperCommand:
    """Return the command of this name, as the shell knows it."""
    from testbed.options import outputs

    classes = {
        "run": outputs.RunCommand,
        "profile": outputs.ScriptCommand,
        "same": outputs.ForgivingScriptCommand,
        "fuzz": outputs.ScriptByNameCommand,
        "plan": outputs.ScriptByNameCommand,
    }
    module = import_module(f"testbed.commands.{name}")
    function = getattr(module, name)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(
        name,
        cls=classes.get(name, outputs.CheckedCommand),
        help=(docstring_of(function) or "").partition("\n\nArgs:")[0],
        epilog=module.EXAMPLES,
    )(function.in_shell)
    command: TyperCommand = typer.main.get_command(alone)  # type: ignore[assignment]
    return command


def _refuse_moved(args: list[str]) -> None:
    for name in (args[0], *(f"{args[0]} {word}" for word in args[1:])):
        if name in MOVED:
            raise UsageError(f"{name} moved: {MOVED[name]}, in a checkout")


def _print_version(wanted: bool) -> None:
    if wanted:
        from testbed.output.folder import versions

        own, *others = versions().items()
        print(f"testbed {own[1]} ({', '.join(f'{name} {number}' for name, number in others if number)})")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions.")
    ] = False,
) -> None:
    """Collective communication and data-parallel training: prove, measure, predict, show.

    Exit codes: 0 done, 1 a check or a run failed, 2 usage.
    """


app.callback(help=docstring_of(root))(root)
for _name, _said in COMMANDS.items():
    app.command(_name, help=_said)(lambda: None)


def main() -> None:
    """Run the command line."""
    from testbed.output.streams import open_closed_streams, use_what_streams_know

    open_closed_streams()
    use_what_streams_know()
    app(prog_name="testbed")
