"""Commands: functions that return a result, called alike from Python and from the shell.

A command is a function whose parameters are its options.  From Python it takes them as keyword arguments,
with their defaults, and returns a `Result`.  `command` adds what the shell has besides: ``--json``,
``--html`` and ``--csv``, ``--plot`` where its result has a figure, errors as one line, and exit code 1 where
something does not hold.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import typer

from collectives.formats.whole_file import write_whole
from testbed.errors import CheckError, UsageError, drop_stdout, reporting_errors
from testbed.options import ALSO
from testbed.options.groups import grouped
from testbed.options.outputs import CheckedCommand, check_outputs
from testbed.options.project import TAKEN
from testbed.options.values import check_values, naming_foreign_files

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.result import Result


@dataclass(frozen=True)
class Outputs:
    """How a command gives its result: files, and in the shell stdout, where a call from Python returns it.

    Attributes:
        html: Write it as a page too: one file, to be read or printed.
        csv: Write the rows too, as CSV.
        as_json: Print the result as JSON, and nothing else on stdout.
    """

    PANEL: ClassVar = "Output"

    plot: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    csv: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None
    as_json: Annotated[bool, typer.Option("--json")] = False

    @classmethod
    def among(cls, options: Mapping[str, Any]) -> Outputs:
        """Return those among *options*."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})

    def give(self, result: Result, console: Callable[[], Console] | None = None) -> None:
        """Give *result*: in files, and as JSON or on the terminal that *console* returns.

        Raises:
            OSError: a file cannot be written; the result is on stdout all the same.
            UsageError: there is no figure to draw; the same.
            BrokenPipeError: nobody reads stdout any more, and nothing has failed.
        """
        files, unwritten = self.write(result)
        try:
            if self.as_json:
                from testbed.output.table import print_json

                print_json(result.document())
            else:
                shown = replace(result, files={**result.files, **files})
                shown.show(None if console is None else console())
        except BrokenPipeError:
            if result.failure is None:
                raise
            drop_stdout()
        if unwritten is not None:
            raise unwritten

    def write(self, result: Result) -> tuple[dict[str, Path], OSError | UsageError | None]:
        """Write the files of *result* that were asked for; return them by what they are, and what failed."""
        unwritten: OSError | UsageError | None = None
        files: dict[str, Path] = {}
        for what, path, write in self._wanted(result):
            try:
                write()
                files[what] = path
            except (OSError, UsageError) as error:
                unwritten = unwritten or error
        return files, unwritten

    def _wanted(self, result: Result) -> Iterator[tuple[str, Path, Callable[[], None]]]:
        """Yield the files that were asked for: what each is, its path, and what writes it."""
        if (page := self.html) is not None:
            yield "Page", page, lambda: write_whole(page, result.to_html())
        if (rows := self.csv) is not None:
            yield "Rows", rows, lambda: write_whole(rows, result.to_csv())
        if (plot := self.plot) is not None:
            yield "Plot", plot, lambda: result.draw(plot)


class Command(Protocol):
    """A command: a function for Python, and for the shell ``in_shell``."""

    in_shell: Callable[..., None]
    __name__: str

    def __call__(self, *args: Any, **options: Any) -> Result:
        """Carry it out with *options*, by the names that the shell has for them."""


def command(
    function: Callable[..., Result | None],
    *,
    console: Callable[[], Console] | None = None,
    draws: str = "",
    suffixes: str = ".png, .svg or .pdf",
) -> Command:
    """Return *function* as a command.

    Args:
        function: returns a result, or None where another process does; its parameters have the annotations
            of typer.  A keyword-only parameter that is a dataclass stands for an option for each field; one
            of `Outputs` is for a command that must know, while it works, how its result is given.
        console: returns the terminal for the result, where it is not stdout.
        draws: what the figure of its result shows, which ``--plot`` draws; empty: it has none.
        suffixes: of files with its figure, in words.
    """
    flat = naming_foreign_files(grouped(function, Outputs))
    signature = _with_plot(inspect.signature(flat), draws and f"Draw {draws}: {suffixes}.")

    @functools.wraps(function)
    def in_shell(**options: Any) -> None:
        from testbed.result.result import Interrupted

        outputs = Outputs.among(options)
        try:
            result = flat(**{"plot": None, **options})
        except Interrupted as interrupted:
            outputs.give(interrupted.result, console)
            raise interrupted.by from None
        if result is None:
            return
        result = TAKEN.get().noted(result)
        outputs.give(result, console)
        if result.failure is not None:
            code = result.exit_code
            raise CheckError(result.failure, code) if result.failure else typer.Exit(code)

    in_shell.__signature__ = signature.replace(return_annotation=None)  # type: ignore[attr-defined]

    @functools.wraps(function)
    def from_python(*args: Any, **kwargs: Any) -> Result | None:
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        options = _arguments(signature, args, _named(kwargs))
        checked = _in_shell_alone(in_shell)
        check_values(checked, options)
        check_outputs(checked, options)
        outputs = Outputs.among(options)
        if outputs.as_json:
            raise UsageError("as_json=True is of the shell: a result has its JSON types by document()")
        result = flat(**{"plot": None, **options})
        if result is None:
            return None
        result = replace(result, command=f"testbed.{function.__name__}({', '.join(given)})")
        files, unwritten = outputs.write(result)
        if unwritten is not None:
            raise unwritten
        return replace(result, files={**result.files, **files})

    from_python.__signature__ = signature  # type: ignore[attr-defined]
    from_python.in_shell = reporting_errors(in_shell)  # type: ignore[attr-defined]
    return typing.cast("Command", from_python)


@cache
def _in_shell_alone(in_shell: Callable[..., None]) -> Any:
    """Return the command that the shell knows, by itself."""
    app = typer.Typer(add_completion=False)
    app.command(cls=CheckedCommand)(in_shell)
    return typer.main.get_command(app)


def _with_plot(signature: inspect.Signature, says: str) -> inspect.Signature:
    """Return *signature* with what the help *says* of the option ``--plot``, or without it."""
    parameters = dict(signature.parameters)
    plot = parameters.pop("plot")
    if says:
        kind, option = typing.get_args(plot.annotation)
        option = copy(option)
        option.help = says
        parameters["plot"] = plot.replace(annotation=Annotated[kind, option])
    return signature.replace(parameters=list(parameters.values()))


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return *options* by today's words for them, whatever other ones (`ALSO`) were used."""
    named: dict[str, Any] = {}
    for word, value in options.items():
        option = word.replace("_", "-")
        name = ALSO.get(option, option).replace("-", "_")
        if name in named:
            raise UsageError(f"{word}={value!r}: {name} is given already; give it once")
        named[name] = value
    return named


def _arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a call from Python gives each parameter, as the shell would have given it.

    Raises:
        TypeError: there is no such parameter, or one lacks a value.
        UsageError: a value is none that the option takes.
    """
    bound = signature.bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        if signature.parameters[name].default is inspect.Parameter.empty and value in (None, [], ()):
            raise UsageError(f"{name}={value!r}: expected at least one")
    bound.apply_defaults()
    return {
        name: _as_option(name, value, signature.parameters[name].annotation)
        for name, value in bound.arguments.items()
    }


def _as_option(name: str, value: Any, annotation: Any) -> Any:
    """Return *value* as the type of an option: words for one word, a word for a number, a path for a word."""
    kinds = _kinds(annotation)
    if value is None or any(
        isinstance(value, kind) if isinstance(kind, type) else value == kind for kind in kinds
    ):
        return value
    for kind in kinds:
        if typing.get_origin(kind) is list:
            inner = typing.get_args(kind)[0]
            several = value if isinstance(value, list | tuple) else [value]
            return [_as_option(name, one, inner) for one in several]
    if str in kinds and isinstance(value, list | tuple | range):
        return ",".join(map(str, value))
    if str in kinds and isinstance(value, int | float | Path):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    for kind in kinds:
        if kind is bool or (kind is int and isinstance(value, float)):
            continue
        if isinstance(kind, type) and kind is not type(None) and not is_dataclass(kind):
            try:
                return kind(value)
            except (TypeError, ValueError):
                continue
    raise UsageError(f"{name}={value!r}: expected {_spell(kinds)}")


def _kinds(annotation: Any) -> list[Any]:
    """Return the types that *annotation* admits, and the words."""
    if typing.get_origin(annotation) is Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [kind for own in typing.get_args(annotation) for kind in _kinds(own)]
    if typing.get_origin(annotation) is typing.Literal:
        return [*typing.get_args(annotation)]
    return [annotation]


def _spell(kinds: list[Any]) -> str:
    names: list[str] = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            names += [str(own.value) for own in kind]
        elif kind is not type(None):
            names.append(getattr(kind, "__name__", str(kind)))
    return " or ".join(names)
