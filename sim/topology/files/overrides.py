"""Overrides of single fields of a network file: the same network with cards twice as fast.

A field has the name that it has in the file; of a link class of a graph it is ``class.NAME.bandwidth``.
What was measured on the network as it is, tables of `[[measured]]` and a calibration, says nothing of it
with another link, so both are left out where a field is overridden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from sim.errors import NetworkFileError
from sim.files.fields import Fields, nearest
from sim.topology.files.schema import NetworkFields

_NEVER = frozenset(
    {"schema_version", "kind", "description", "source", "hardware", "measured", "calibration", "sharing"}
    | {"classes", "nodes", "links", "routes", "in_network_reduction"}
)
"""Tables, and fields that say what the file is."""


def overridable(fields: NetworkFields) -> tuple[str, ...]:
    """Return the names of *fields* that can be overridden."""
    own = [name for name in type(fields).model_fields if _is_plain(name)]
    classes = getattr(fields, "classes", {})
    return (*own, *(f"class.{name}.{field}" for name in classes for field in ("bandwidth", "latency")))


def overridden(fields: Any, values: Mapping[str, str | int | float], file: str) -> NetworkFields:
    """Return *fields* of a network with other *values* of some, as they are written in files; of *file*.

    Raises:
        NetworkFileError: there is no such field, or it cannot have that value; names the field, what is
            expected and what is nearest.
    """
    for name, value in values.items():
        known = overridable(fields)
        if name not in known:
            raise NetworkFileError(
                f"{file}: {name}: no field of this network that can be set{nearest(name, known)}; "
                f"expected one of {', '.join(known)}"
            )
        if name.startswith("class."):
            _, table, field = name.split(".", 2)
            own = fields.classes[table]
            one = own.model_copy(update={field: _read(type(own), field, value, file)})
            fields = fields.model_copy(update={"classes": {**fields.classes, table: one}})
        else:
            fields = fields.model_copy(update={name: _read(type(fields), name, value, file)})
    changed: NetworkFields = fields.model_copy(update={"measured": [], "calibration": {}} if values else {})
    return changed


def _is_plain(name: str) -> bool:
    return name not in _NEVER and not name.endswith("_sharing")


def _read(table: type[Fields], name: str, value: str | int | float, file: str) -> Any:
    """Return *value* as field *name* of *table* holds it."""
    info: FieldInfo = table.model_fields[name]
    declared: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    try:
        return TypeAdapter(declared).validate_python(_plain(value), strict=True)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise NetworkFileError(f"{file}: {name} = {value}: {message[:1].lower()}{message[1:]}") from None


def _plain(value: str | int | float) -> str | int | float | list[int]:
    """Return *value*, or the number that it spells; of several with x between, as in ``4x4``, a list."""
    if not isinstance(value, str):
        return value
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    if all(part.isdecimal() for part in value.split("x")):
        return [int(part) for part in value.split("x")]
    return value
