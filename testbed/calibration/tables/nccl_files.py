"""JSON and CSV files of nccl-tests and rccl-tests, read into rows.

| file | written by | says |
|---|---|---|
| an object with ``results`` and ``config`` | nccl-tests, option ``-J`` | all |
| an object with ``identifier`` and ``benchmark`` | nccl-tests, as proposed before | sizes and times alone |
| a list of objects, or a CSV, with ``numCycle`` and ``busBw`` | rccl-tests, option ``-x`` | all |

Times are microseconds, those out of place.

Source: NVIDIA/nccl-tests, src/util.cu, jsonOutputInit to writeBenchmarkLineBody; NVIDIA/nccl-tests#318;
ROCm/rccl-tests#93.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from collectives.formats.json_document import problems
from testbed.calibration.tables.measured_row import MeasuredRow, collective_named
from testbed.errors import UsageError

RCCL_COLUMNS = frozenset(("numCycle", "name", "ranks", "size", "inPlace", "time", "busBw"))
"""Columns by which a file of rccl-tests is known."""
_MICRO = 1e-6
Model = TypeVar("Model", bound=BaseModel)


class _Device(BaseModel):
    """A rank of nccl-tests."""

    rank: int
    group: int = 0
    hostname: str


class _Timing(BaseModel):
    """Out of place, or in place; ``cpu_time`` stands instead where the host's was asked for."""

    time: float | None = None


class _Result(BaseModel):
    """A size of nccl-tests."""

    size: Annotated[int, Field(ge=0)]
    out_of_place: _Timing | None = None


class _Config(BaseModel):
    """How nccl-tests was run."""

    devices: list[_Device] | None = None


class _Document(BaseModel):
    """What nccl-tests writes."""

    args: list[str] = []
    config: _Config
    devices: list[_Device] | None = None
    results: list[_Result]


class _Structured(BaseModel):
    """A size of the structured output that was proposed."""

    oop_time: float


class _StructuredDocument(BaseModel):
    """The structured output that was proposed: objects with a size as their key."""

    benchmark: list[dict[Annotated[int, Field(ge=0)], _Structured]]


class _RcclRow(BaseModel):
    """A line of rccl-tests."""

    name: str
    nodes: Annotated[int, Field(ge=1)]
    ranks: Annotated[int, Field(ge=1)]
    gpus: Annotated[int, Field(ge=1, alias="gpusPerRank")] = 1
    size: Annotated[int, Field(ge=0)]
    in_place: Annotated[int, Field(alias="inPlace")]
    time: float


def is_nccl_document(content: Any) -> bool:
    """Return whether the JSON value *content* is a file of nccl-tests or rccl-tests."""
    if isinstance(content, list):
        return bool(content) and isinstance(content[0], dict) and content[0].keys() >= RCCL_COLUMNS
    return isinstance(content, dict) and (
        content.keys() >= {"results", "config"} or content.keys() >= {"identifier", "benchmark"}
    )


def read_nccl_document(
    content: Any, file: str, system: str, *, collective: str | None, ranks: int | None, nodes: int | None
) -> list[MeasuredRow]:
    """Return the rows of a JSON value that `is_nccl_document`.

    Args:
        content: the value.
        file: how errors call it.
        system: name of the set of measurements.
        collective: what was measured, where the file does not say.
        ranks: how many, where the file does not say.
        nodes: how many, where the file does not say.

    Raises:
        UsageError: a field is wrong, or something is not said.
    """
    if isinstance(content, list):
        return read_rccl_rows(content, file, system)
    if "benchmark" in content:
        return list(_structured(content, file, system, collective, ranks, nodes))
    return list(_results(content, file, system, collective))


def read_rccl_rows(
    lines: list[Mapping[str, Any]], file: str, system: str, first_line: int = 1
) -> list[MeasuredRow]:
    """Return the rows of *lines* of rccl-tests, each with `RCCL_COLUMNS`.

    Raises:
        UsageError: a field is wrong.
    """
    rows = []
    for number, line in enumerate(lines, start=first_line):
        where = f"{file}: line {number}"
        row = _valid(_RcclRow, line, where, "a line of rccl-tests")
        if row.in_place:
            continue
        num_ranks = row.ranks * row.gpus
        _check_ranks(where, num_ranks, row.nodes)
        what = _collective(row.name, where)
        rows.append(MeasuredRow(system, what, row.size, row.nodes, num_ranks, row.time * _MICRO, line=number))
    return rows


def _results(content: Any, file: str, system: str, collective: str | None) -> Iterator[MeasuredRow]:
    document = _valid(_Document, content, file, "a file of nccl-tests (-J)")
    devices = document.devices or document.config.devices or []
    _check_ranks(file, len(devices), len({device.hostname for device in devices}))
    if len({device.group for device in devices}) > 1:
        raise UsageError(
            f"{file}: several groups of ranks were measured at once (NCCL_TESTS_SPLIT); expected one"
        )
    tests = [PurePath(word).name for word in document.args[:1]]
    what = _collective(tests[0] if tests else collective or "", file)
    for number, result in enumerate(document.results, start=1):
        if result.out_of_place is None:
            continue
        if result.out_of_place.time is None:
            raise UsageError(
                f"{file}: results {number}: expected a time, got none; a cpu_time (option -C) is the host's"
            )
        yield MeasuredRow(
            system,
            what,
            result.size,
            len({device.hostname for device in devices}),
            len(devices),
            result.out_of_place.time * _MICRO,
            line=number,
        )


def _structured(
    content: Any, file: str, system: str, collective: str | None, ranks: int | None, nodes: int | None
) -> Iterator[MeasuredRow]:
    document = _valid(_StructuredDocument, content, file, "structured output of nccl-tests")
    if ranks is None:
        raise UsageError(f"{file}: the file does not say on how many ranks; give --ranks")
    if collective is None:
        raise UsageError(f"{file}: the file does not say what was measured; give --collective")
    num_nodes = nodes or 1
    _check_ranks(file, ranks, num_nodes)
    sizes = [pair for sizes in document.benchmark for pair in sizes.items()]
    for number, (nbytes, timing) in enumerate(sizes, start=1):
        yield MeasuredRow(system, collective, nbytes, num_nodes, ranks, timing.oop_time * _MICRO, line=number)


def _collective(name: str, where: str) -> str:
    """Return our name of what nccl-tests call *name*.

    Raises:
        UsageError: it is none of ours, or empty.
    """
    named = collective_named(name)
    if named is None:
        raise UsageError(
            f"{where}: expected a test of a collective, got {name or 'no name'}; give --collective"
        )
    return named


def _check_ranks(where: str, num_ranks: int, num_nodes: int) -> None:
    if num_ranks < 2:
        raise UsageError(f"{where}: expected two ranks or more, got {num_ranks}: alone a rank moves nothing")
    if num_ranks % num_nodes:
        raise UsageError(f"{where}: {num_ranks} ranks on {num_nodes} nodes; expected equally many on each")


def _valid(model: type[Model], content: Any, where: str, what: str) -> Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{where}: expected {what}: {problems(error)}") from None
