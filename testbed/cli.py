"""The command `testbed`: the names of the commands, and what each does in a line.

A command is imported when it is called, and imports what it needs when it runs, so that `testbed --help`
starts at once and `testbed verify` without torch.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from collectives.docstrings import docstring_of
from testbed.options import ALSO

COMMANDS = {
    "verify": "Prove algorithms right, without data.",
    "show": "Draw who sends which chunk to whom, in which step, with the cost and the source.",
    "export": "Write an algorithm, or a table of which is fastest, for another runtime.",
    "bench": "Time a collective in the columns of nccl-tests, or compare algorithms.",
    "scale": "Predict how a training step scales.",
    "plan": "Answer a question about a cluster: time, cost and what limits each design.",
    "run": "Run a training script, unmodified, as many ranks in virtual time, in one process.",
    "same": "Say whether a training is the same on different numbers of ranks,"
    " and at which step it first parts.",
    "fuzz": "Try a script, or programs, under faults and orders of events that are drawn from seeds.",
    "profile": "Record the profile of the module that a script trains.",
    "tune": "Find the buckets, strategy and algorithm that make a training step shortest.",
    "simulate": "Predict how long a collective takes on a network, and see where its time goes.",
    "synthesize": "Make a program for this network: trees or paths,"
    " so that its fullest link carries as little as can be.",
    "network": "Show a network: its links, its diameter, its bisection bandwidth, and a sketch.",
    "calibrate": "Find the constants of a machine, and write the file that predicts with them.",
    "validate": "Hold predictions against measurements:"
    " what was predicted, what was measured, and how far apart.",
    "compare": "Hold two results against each other:"
    " what was asked differently, and what came out differently.",
    "env": "Show what this machine has and can do.",
}
"""What each command does: the first sentence of its docstring."""
GONE = ("claims", "demo")
MOVED = ("validate", *GONE)
"""Commands that moved to a checkout, or some of whose options did."""


class Commands(TyperGroup):
    """Commands of which names and summaries are known; the one that is called is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that *args* name, and what is left of them."""
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

    classes = dict.fromkeys(MOVED, outputs.MovedCommand) | {
        "run": outputs.ScriptCommand,
        "profile": outputs.ScriptCommand,
        "same": outputs.ForgivingScriptCommand,
        "fuzz": outputs.ScriptByNameCommand,
        "plan": outputs.ScriptByNameCommand,
    }
    module = None if name in GONE else import_module(f"testbed.commands.{name}")
    function = getattr(module, name, _say_where)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(
        name,
        cls=classes.get(name, outputs.CheckedCommand),
        help=(docstring_of(function) or "").partition("\n\nArgs:")[0],
        epilog=getattr(module, "EXAMPLES", None),
        hidden=name not in COMMANDS,
    )(getattr(function, "in_shell", function))
    command: TyperCommand = typer.main.get_command(alone)  # type: ignore[assignment]
    return command


def _say_where() -> None:
    """Say where the command is."""


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
for _name in (*COMMANDS, *GONE):
    app.command(_name, help=COMMANDS.get(_name), hidden=_name not in COMMANDS)(lambda: None)


def main() -> None:
    """Run the command line."""
    from testbed.output.streams import open_closed_streams, use_what_streams_know

    open_closed_streams()
    use_what_streams_know()
    app(prog_name="testbed")
