"""Groups of options: dataclasses that a command takes instead of a parameter for each option."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from collectives.docstrings import docstring_of, entries_of
from testbed.errors import UsageError

T = TypeVar("T")


def grouped(command: Callable[..., T], beside: Any = None) -> Callable[..., T]:
    """Let *command* be called with the fields of its dataclasses, as the command line gives them.

    A keyword-only parameter of *command* that is a dataclass stands for one option for each field, of the
    field's name, annotation and default.  Its ``PANEL`` is the heading of these options in ``--help``, which
    says of each option what the docstring says of its parameter or field, where its annotation says nothing.
    The group *beside* has options of which *command* may know nothing.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if name != "return" and is_dataclass(kind)
    }

    unknown = [] if beside in (None, *groups.values()) else _options_of(beside)
    said = entries_of(docstring_of(command) or "", "Args")
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            annotation = _described(hints[parameter.name], said.get(parameter.name))
            parameters.append(parameter.replace(annotation=annotation))

    @functools.wraps(command)
    def called(**options: Any) -> T:
        for option in unknown:
            options.pop(option.name)
        for name, kind in groups.items():
            own = {field.name: options.pop(field.name) for field in fields(kind)}
            options[name] = kind(**own)
        return command(**options)

    called.__signature__ = inspect.Signature([*parameters, *unknown])  # type: ignore[attr-defined]
    return called


def given(group: Any, *names: str) -> dict[str, bool]:
    """Return which options of a *group* have another value than by default, all or those of *names*."""
    defaults = {field.name: field.default for field in fields(group) if field.name in names or not names}
    return {
        f"--{name.rstrip('_').replace('_', '-')}": getattr(group, name) != default
        for name, default in defaults.items()
    }


def refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse options that were *given*: such as ``--ideal and --goodput ask different things``.

    Raises:
        UsageError: one has a value; *why* says with its name, in place of ``{}``, why it cannot have one.
    """
    for option, value in given.items():
        if value not in (None, False, (), []):
            raise UsageError(why.format(option))


def _options_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    said: dict[str, str] = {}
    for own in reversed(kind.__mro__[:-1]):
        said |= entries_of(docstring_of(own) or "", "Attributes")
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_described(hints[field.name], said.get(field.name), getattr(kind, "PANEL", None)),
        )
        for field in fields(kind)
    ]


def _described(annotation: Any, said: str | None, panel: str | None = None) -> Any:
    """Return the *annotation* of an option with what is *said* of it, under the heading *panel*."""
    if said is None and panel is None:
        return annotation
    is_bare = get_origin(annotation) is not Annotated
    kind, option = (annotation, typer.Option()) if is_bare else get_args(annotation)
    option = copy(option)
    option.help = option.help or said
    if panel is not None:
        option.rich_help_panel = panel
    return Annotated[kind, option]
