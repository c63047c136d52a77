"""Problems of a TOML file in plain words: the line, the field, what is allowed and what is nearest."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sim.files.fields import Fields, nearest
from sim.files.toml_lines import Place, line_of

MAX_PROBLEMS = 5
"""So many are reported at once."""


def problems(error: ValidationError, lines: Mapping[Place, int], model: type[Fields], what: str) -> str:
    """Return what pydantic found.

    Args:
        error: what it found.
        lines: of the keys.
        model: of the whole file.
        what: the file describes, such as ``a device``.
    """
    details = error.errors(include_url=False)
    said = [_problem(detail, lines, model) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        said.append(f"and {len(details) - MAX_PROBLEMS} more")
    at_top = [detail["loc"] for detail in details if detail["type"] in ("missing", "extra_forbidden")]
    if place := next((place for place in at_top if len(place) == 1), None):
        said.append(f"{what} has the fields {', '.join(fields_at(model, place))}")
    return "; ".join(said)


def _problem(detail: Any, lines: Mapping[Place, int], model: type[Fields]) -> str:
    place = detail["loc"]
    at = where(place, lines) + spell_place(place)
    if detail["type"] == "missing":
        return f"{at}: this field is missing"
    if detail["type"] == "extra_forbidden":
        return f"{at}: unknown field{nearest(place[-1], fields_at(model, place))}"
    message = detail["msg"].removeprefix("Value error, ")
    got = "" if detail["type"] == "value_error" else f", got {spell(detail['input'])}"
    return f"{at}: {message[:1].lower()}{one_line(message[1:])}{got}"


def fields_at(model: type[Fields], place: Place) -> list[str]:
    """Return the names of the fields, as files have them, of the table in which the field *place* stands."""
    keys = [key for key in place[:-1] if isinstance(key, str)]
    while keys:
        annotation = _fields_of(model)[keys.pop(0)].annotation
        model = next(_tables_in(annotation), model)
        if get_origin(annotation) is dict:
            del keys[:1]  # the name of one of several tables
    return [*_fields_of(model)]


def _fields_of(model: type[Fields]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _tables_in(annotation: Any) -> Iterator[type[Fields]]:
    """Yield the tables that the type of a field mentions."""
    if isinstance(annotation, type) and issubclass(annotation, Fields):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables_in(argument)


def where(place: Place, lines: Mapping[Place, int]) -> str:
    """Return the line of *place* for the beginning of a message, or nothing if none is known."""
    line = line_of(place, lines)
    return "" if line is None else f"line {line}: "


def spell_place(place: Place) -> str:
    """Return *place* for people, who count tables from 1: ``link 3, bandwidth``."""
    parts: list[str] = []
    for part in place:
        if isinstance(part, int):
            parts[-1] += f" {part + 1}"
        else:
            parts.append(part if re.fullmatch(r"[\w-]{1,80}", part) else spell(part))
    return ", ".join(parts)


def spell(value: object) -> str:
    """Return *value* as Python writes it, shortened where it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return "a number of thousands of digits"


def one_line(message: object) -> str:
    """Return *message* without line breaks."""
    return " ".join(str(message).split())
