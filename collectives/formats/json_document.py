"""JSON documents of users: data from anywhere, read by a schema and refused with file and field.

What is accepted means one thing: keys stand once, numbers are finite, nothing is converted in silence, and
sizes have bounds.  Errors have one form, that of TOML files (`sim.files.problems`): the file, the field with
tables counted from 1, what was expected, what was got.
"""

from __future__ import annotations

import difflib
import json
import reprlib
from os import PathLike
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_BYTES = 64 * 2**20
"""The largest document that is read."""
MAX_PROBLEMS = 5
"""So many are reported at once."""

Model = TypeVar("Model", bound=BaseModel)


def read_json_document(
    path: str | PathLike[str], model: type[Model], refusal: type[Exception], what: str
) -> Model:
    """Return the document at *path*, which is *what*, such as ``a profile``, by the schema *model*.

    Raises:
        Exception: *refusal*, if it is none.
        OSError: it cannot be read.
    """
    return parse_json_document(read_bytes(path, refusal), str(path), model, refusal, what)


def parse_json_document(
    content: bytes, file: str, model: type[Model], refusal: type[Exception], what: str
) -> Model:
    """Return the document that *content* is; errors call it *file*.

    Raises:
        Exception: *refusal*, if it is none.
    """
    parse_json(content, file, refusal)
    try:
        return model.model_validate_json(content, strict=True)
    except ValidationError as error:
        raise refusal(f"{file}: expected {what}: {problems(error, model)}") from None


def read_bytes(path: str | PathLike[str], refusal: type[Exception]) -> bytes:
    """Return what stands in the file at *path*, if that is no more than `MAX_BYTES`.

    Raises:
        Exception: *refusal*, if it is more.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise refusal(f"{path}: expected at most {MAX_BYTES} bytes, got more")
    return content


def parse_json(content: bytes, file: str, refusal: type[Exception]) -> Any:
    """Return the JSON value that *content* is, in which each key stands once and each number is finite.

    Raises:
        Exception: *refusal*, if it is none.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for number, name in enumerate(names) if name in set(names[:number]))
            raise ValueError(f"the key {spell(twice)} stands twice in one object")
        return found

    def constant(name: str) -> NoReturn:
        raise ValueError(f"expected finite numbers, got {name}")

    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=once, parse_constant=constant)
    except RecursionError:
        raise refusal(f"{file}: not a JSON file: it is nested too deeply") from None
    except ValueError as error:
        raise refusal(f"{file}: not a JSON file: {error}") from None


def problems(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return what pydantic found, the first few of it; *model* knows the fields at the top."""
    found = error.errors(include_url=False)
    around = {detail["loc"][:end] for detail in found for end in range(len(detail["loc"]))}
    details = [detail for detail in found if detail["loc"] not in around]
    said = [_problem(detail, model) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        said.append(f"and {len(details) - MAX_PROBLEMS} more")
    return "; ".join(said)


def _problem(detail: ErrorDetails, model: type[BaseModel] | None) -> str:
    place = detail["loc"]
    at = f"{spell_place(place)}: " if place else ""
    if detail["type"] == "missing":
        return f"{at}this field is missing"
    if detail["type"] == "extra_forbidden":
        known = [own.alias or name for name, own in model.model_fields.items()] if model else []
        nearest = difflib.get_close_matches(str(place[-1])[:100], known, n=1) if len(place) == 1 else []
        return f"{at}unknown field" + (f" (did you mean {nearest[0]!r}?)" if nearest else "")
    message = " ".join(detail["msg"].removeprefix("Value error, ").split())
    got = "" if detail["type"] == "value_error" else f", got {spell(detail['input'])}"
    return f"{at}{message[:1].lower()}{message[1:]}{got}"


def spell_place(place: tuple[str | int, ...]) -> str:
    """Return *place* for people, who count from 1: ``rows 3, time_us``."""
    parts: list[str] = []
    for part in place:
        if isinstance(part, int) and parts:
            parts[-1] += f" {part + 1}"
        else:
            text = str(part)
            parts.append(text if text.isprintable() and len(text) <= 80 else spell(text))
    return ", ".join(parts)


def spell(value: object) -> str:
    """Return *value* as Python writes it, shortened where it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write integers of more than 4300 digits
        return "a number of thousands of digits"
