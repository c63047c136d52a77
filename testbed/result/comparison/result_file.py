"""Result of a command, read from the JSON that it wrote."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from collectives.formats.json_document import read_json_document
from testbed.errors import UsageError
from testbed.output.folder import Method


class ResultError(UsageError):
    """A file that is no result of a command."""


class ResultFile(BaseModel):
    """What every result says of itself; the rest of the document is its body."""

    model_config = ConfigDict(extra="allow", frozen=True)

    schema_number: Literal[1] = Field(alias="schema")
    command: str
    versions: dict[str, str | None]
    method: Method | list[Method]
    model: str
    seed: int | None
    topologies: dict[str, str]
    question: str = ""
    answer: str | list[str] = ""
    asked: dict[str, list[str]] = {}
    how: dict[str, list[str]] = {}
    units: dict[str, str] = {}

    @property
    def body(self) -> dict[str, Any]:
        """The result itself, as JSON types."""
        return dict(self.model_extra or {})

    @property
    def methods(self) -> list[Method]:
        """How its figures were got."""
        return self.method if isinstance(self.method, list) else [self.method]


def read_result(path: str | PathLike[str]) -> ResultFile:
    """Return the result in the file at *path*.

    Raises:
        ResultError: it holds none.
        OSError: it cannot be read.
    """
    return read_json_document(path, ResultFile, ResultError, "a result, as commands write it with --json")
