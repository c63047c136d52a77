"""The command `testbed`: registers the commands and nothing else.

Each command imports what it needs when it runs, so that `testbed --help` and
`testbed verify` start at once and without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from collectives.docstrings import docstring_of
from testbed.commands import (
    bench,
    calibrate,
    compare,
    env,
    export,
    fuzz,
    moved,
    network,
    plan,
    profile,
    run,
    same,
    scale,
    show,
    simulate,
    synthesize,
    tune,
    validate,
    verify,
)
from testbed.options.command import ALSO
from testbed.options.outputs import CheckedCommand
from testbed.output.plain_text import use_what_streams_know
from testbed.output.streams import open_closed_streams

app = typer.Typer(
    name="testbed",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": lambda name: ALSO.get(name, name),
    },
)


def command(
    cls: type[CheckedCommand] = CheckedCommand, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a command that says what its docstring says."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        in_shell = getattr(function, "in_shell", function)
        app.command(cls=cls, help=docstring_of(function), **options)(in_shell)
        return function

    return register


command(epilog=verify.EXAMPLES)(verify.verify)
command(epilog=show.EXAMPLES)(show.show)
command(epilog=export.EXAMPLES)(export.export)
command(epilog=bench.EXAMPLES)(bench.bench)
command(epilog=scale.EXAMPLES)(scale.scale)
command(epilog=plan.EXAMPLES)(plan.plan)
command(epilog=run.EXAMPLES, context_settings={"allow_interspersed_args": False})(run.run)
command(epilog=same.EXAMPLES)(same.same)
command(epilog=fuzz.EXAMPLES)(fuzz.fuzz)
command(epilog=profile.EXAMPLES, context_settings={"allow_interspersed_args": False})(profile.profile)
command(epilog=tune.EXAMPLES)(tune.tune)
command(epilog=simulate.EXAMPLES)(simulate.simulate)
command(epilog=synthesize.EXAMPLES)(synthesize.synthesize)
command(epilog=network.EXAMPLES)(network.network)
command(epilog=calibrate.EXAMPLES)(calibrate.calibrate)
command(moved.MovedCommand, epilog=validate.EXAMPLES)(validate.validate)
command(moved.MovedCommand, hidden=True)(moved.claims)
command(moved.MovedCommand, hidden=True)(moved.demo)
command(epilog=compare.EXAMPLES)(compare.compare)
command(epilog=env.EXAMPLES)(env.env)


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


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    use_what_streams_know()
    app(prog_name="testbed")
