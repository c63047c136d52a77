"""Programs of the laboratory: commands on a command line of their own."""

from __future__ import annotations

import sys

import typer

from collectives.docstrings import docstring_of
from testbed.options.command import Command
from testbed.options.outputs import CheckedCommand
from testbed.output.streams import open_closed_streams, use_what_streams_know


def program(command: Command, examples: str) -> typer.Typer:
    """Return the program that *command* is, with what its docstring says as its help."""
    app = typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.command(cls=CheckedCommand, help=docstring_of(command), epilog=examples)(command.in_shell)
    return app


def start(app: typer.Typer, module: str) -> None:
    """Run *app* as ``python -m`` *module*, by which results name the command."""
    sys.argv[0] = module
    open_closed_streams()
    use_what_streams_know()
    app(prog_name=f"python -m {module}")
