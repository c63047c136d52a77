"""Groups of options: dataclasses that a command takes instead of a parameter for each option."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

T = TypeVar("T")


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """Let *command* be called with the fields of its dataclasses, as the command line gives them.

    A keyword-only parameter of *command* that is a dataclass stands for one option for each field, of the
    field's name, annotation and default.  Its ``PANEL`` is the heading of these options in ``--help``.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if name != "return" and is_dataclass(kind)
    }

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(command)
    def called(**options: Any) -> T:
        for name, kind in groups.items():
            own = {field.name: options.pop(field.name) for field in fields(kind)}
            options[name] = kind(**own)
        return command(**options)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _options_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_in_panel(hints[field.name], getattr(kind, "PANEL", None)),
        )
        for field in fields(kind)
    ]


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """Return the *annotation* of an option, which ``--help`` shows under the heading *panel*."""
    kind, option = get_args(annotation)
    option = copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
