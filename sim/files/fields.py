"""Fields of network and device files, each kind read and checked in one place.

Errors of `sim.units` become errors of the field, so that whoever reads the file learns its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from sim.units import SECOND, parse_bandwidth, parse_rate, parse_size, parse_time


class Fields(BaseModel):
    """A table of a file: no unknown fields, and no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _printed(text: str) -> str:
    if not all(sign.isprintable() or sign in "\n\t" for sign in text):
        raise ValueError(f"expected text without control characters, got {text[:100]!a}")
    return text


class FieldError(ValueError):
    """A field that is wrong only in view of others.

    Attributes:
        place: keys from the top down, in an array of tables its number from 0.
    """

    def __init__(self, place: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.place = place


def _read(parse: Callable[[Any, str], int]) -> BeforeValidator:
    def validate(value: Any) -> int:
        try:
            return parse(value, "")
        except ValueError as error:
            raise ValueError(str(error).removeprefix(": ")) from None

    return BeforeValidator(validate)


_MOST_PARTS = 1024

_EXAMPLES = {
    "bandwidth": "100Gbps, 300GB/s, or bytes per second",
    "rate": "989.4TFLOP/s, or operations per second",
    "time": "2us, 1.5ms, or seconds",
    "size": "80GB, 16GiB (powers of 1024), or bytes",
}


def _schema(what: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "description": _EXAMPLES[what]})


Words: TypeAlias = Annotated[str, Field(max_length=10_000), AfterValidator(_printed)]
"""Text that people read, perhaps on a terminal, of which no file shall have control."""
Bandwidth: TypeAlias = Annotated[int, _read(parse_bandwidth), _schema("bandwidth")]
"""In bytes per second."""
Time: TypeAlias = Annotated[int, _read(parse_time), Field(le=86_400 * SECOND), _schema("time")]
"""In picoseconds, at most a day: sums of some of them fit into 64 bits."""
Rate: TypeAlias = Annotated[int, _read(parse_rate), _schema("rate")]
"""In operations per second."""
Size: TypeAlias = Annotated[int, _read(parse_size), Field(ge=1), _schema("size")]
"""In bytes."""
Efficiency: TypeAlias = Annotated[float, Field(gt=0, le=1)]
"""The part of a line rate that carries payload."""
Count: TypeAlias = Annotated[int, Field(ge=1, lt=2**63)]


class SharingTable(Fields):
    """What flows get of a link together: of one flow, of two, …; see `sim.topology.sharing_table`."""

    one_way: list[Efficiency] = Field(default=[1.0], min_length=1, max_length=_MOST_PARTS)
    both_ways: list[Efficiency] | None = Field(default=None, min_length=1, max_length=_MOST_PARTS)


Parts: TypeAlias = dict[str, list[float]] | None
"""A sharing table as the constructors of `Topology` read it."""


def parts(table: SharingTable | None) -> Parts:
    """Return *table* as the constructors of `Topology` read it."""
    return None if table is None else table.model_dump(exclude_none=True)


def quantity(latency_ps: int) -> str:
    """Return *latency_ps* as the constructors of `Topology` read it."""
    return f"{latency_ps}ps"


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a question whether the nearest of *known* was meant, or nothing if none is near."""
    matches = get_close_matches(str(name)[:100], list(known)[:10_000], n=1, cutoff=0.5)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
