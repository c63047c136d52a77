"""Arguments that several commands have: counts, ranges, sizes, placements; declared, and read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from testbed.errors import UsageError

if TYPE_CHECKING:
    from collectives.catalogue.selectors import Choice
    from collectives.virtual.computation import ComputeModel
    from sim.topology.placement import Placement

MAX_RANKS = 1 << 17
"""Of a cluster that a command is asked about: 131,072, the largest that was tried."""

MAX_LENGTH = 4000
"""Characters of a list of sizes."""

MAX_BYTES = 1 << 50
"""Of a buffer: a pebibyte, with which times still fit into the figures that follow from them."""

_RANKS = re.compile(r"(\d{1,20})(?:-(\d{1,20})(?:x(\d{1,20}))?)?", re.ASCII)

MAX_COUNT = 10**9
"""Of what is counted on the command line: iterations, seeds and the like."""


def parse_limit(text: str | None) -> float | None:
    """Return the seconds of a time limit: ``60``, ``60s`` or ``500ms``; None: there is none.

    Raises:
        UnitError: it cannot be read.
    """
    from sim.units import SECOND, parse_time

    return None if text is None else parse_time(text, "--time-limit") / SECOND


def parse_ranks(text: str) -> list[int]:
    """Return the world sizes that *text* lists: ``8``, ``2-64`` (every one), ``1-1024x2``, ``2,4,8-10``.

    ``1-1024x2`` is 1, then twice as many each time, up to 1024.

    Raises:
        UsageError: it cannot be read.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = _RANKS.fullmatch(part.strip())
        if found is None:
            raise UsageError(
                f"--ranks {_short(text)}: expected a number, a list or a range, such as 8, 2,4,8, 2-64 or "
                "1-1024x2 (1, 2, 4 … 1024)"
            )
        low, high, factor = (None if number is None else int(number) for number in found.groups())
        assert low is not None
        high = low if high is None else high
        if low < 1 or high < low or high > MAX_RANKS or (factor is not None and factor < 2):
            raise UsageError(
                f"--ranks {_short(text)}: expected 1 to {MAX_RANKS}, the smaller first, and a factor of 2 or "
                f"more, got {part.strip()}"
            )
        while low <= high:
            ranks.add(low)
            low = low + 1 if factor is None else low * factor
    return sorted(ranks)


def parse_sizes(text: str, factor: int = 2, option: str = "--nbytes") -> list[int]:
    """Return the message sizes, in bytes, that *text*, the value of *option*, lists.

    ``4K-64M`` is 4 KiB, then *factor* times more each time, up to 64 MiB; ``4K,1M`` is a list.

    Raises:
        UsageError: the range is empty or *factor* is below 2.
        UnitError: a size cannot be read.
    """
    from sim.units import parse_size

    if factor < 2:
        raise UsageError(f"--factor must be at least 2, got {factor}")
    sizes: list[int] = []
    if len(text) > MAX_LENGTH:
        raise UsageError(f"{option} {_short(text)}: expected at most {MAX_LENGTH} characters")
    for part in text.split(","):
        first, dash, last = part.partition("-")
        size = _bounded(parse_size(first, what=option), option)
        if not dash:
            sizes.append(size)
            continue
        end = _bounded(parse_size(last, what=option), option)
        if not 0 < size <= end:
            raise UsageError(f"{option} {part}: a range goes from a size above 0 to one that is no smaller")
        while size <= end:
            sizes.append(size)
            size *= factor
    return sizes


def split_names(text: str, option: str = "--algorithm") -> list[str]:
    """Return the names in a comma-separated list, each with its parameters: ``name:key=value,key=value``.

    Raises:
        UsageError: one of them is empty.
    """
    names: list[str] = []
    for item in text.split(","):
        before_value, equals, _ = item.partition("=")
        if equals and ":" not in before_value and names:
            names[-1] += f",{item}"
        else:
            names.append(item.strip())
    if not all(names):
        raise UsageError(f"{option} {text}: expected names with a comma between them, such as ring,tree")
    return names


def several(given: Sequence[str], option: str) -> list[str]:
    """Return the values that an option was *given*, which may be repeated, or hold commas, or both.

    Raises:
        UsageError: one of them is empty.
    """
    parted = ([text] if os.path.isfile(text) else split_names(text, option) for text in given)
    return list(dict.fromkeys(name for names in parted for name in names))


def parse_placement(text: str) -> Placement:
    """Return the placement of ranks that *text* names, or lists in its order: ``0,8,1,9``, ``0-7,16-23``.

    Raises:
        UsageError: it cannot be read.
    """
    if text in ("packed", "round_robin"):
        return cast("Placement", text)
    places: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not is_number(first) or (dash and not is_number(last)):
            raise UsageError(
                f"--placement {_short(text)}: expected packed, round_robin or a place for each rank, such as "
                "0,8,1,9 or 0-7,16-23"
            )
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high >= MAX_RANKS or len(places) + high - low >= MAX_RANKS:
            raise UsageError(
                f"--placement {_short(text)}: expected places 0 to {MAX_RANKS - 1}, the smaller first "
                f"and {MAX_RANKS} at most, got {part.strip()}"
            )
        places.extend(range(low, high + 1))
    return tuple(places)


def _bounded(size: int, option: str) -> int:
    if size > MAX_BYTES:
        raise UsageError(f"{option}: expected at most {MAX_BYTES >> 40} TiB, got {size} B")
    return size


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:100]}…"


def is_number(text: str) -> bool:
    """Return whether *text* is a whole number, of no more digits than one that can be meant has."""
    return text.isdecimal() and len(text) <= 20


def parse_compute_model(text: str) -> ComputeModel | None:
    """Return the model of computation that *text* names, profiles included; see its `parse_compute`."""
    from collectives.virtual.computation import parse_compute
    from ddp.profiles import load_profile

    return parse_compute(text, lambda name: load_profile(name).compute_charges())


def computes_on_gpu(text: str) -> bool:
    """Return whether the model of computation that *text* names is a GPU, with streams of its own."""
    from collectives.virtual.streams.gpus import gpu_of

    return gpu_of(parse_compute_model(text)) is not None


def parse_algorithm(text: str) -> Choice:
    """Return what *text* chooses: an algorithm of all-reduce, or ``all_reduce=ring,all_gather=bruck``.

    Raises:
        UsageError: what stands before the equals sign is no collective.
    """
    from collectives.catalogue.selectors import DEFAULTS

    named = "|".join(name.replace("_", "[-_]") for name in DEFAULTS)
    if not re.match(rf"(?:{named})=", text):
        first = re.match(r"([\w-]+)=", text)
        if first is not None:
            known = ", ".join(DEFAULTS)
            raise UsageError(f"--algorithm {text}: no collective {first[1]!r}; expected one of {known}")
        return text
    pairs = (part.partition("=")[::2] for part in re.split(rf",(?=(?:{named})=)", text))
    return {collective.replace("-", "_"): algorithm for collective, algorithm in pairs}


Script: TypeAlias = Annotated[str, typer.Argument(metavar="SCRIPT", help="An ordinary torchrun script.")]
ScriptArguments: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]…", help="What the script is given.")
]
IsModule: TypeAlias = Annotated[
    bool, typer.Option("--module", "-m", help="SCRIPT is the name of a module, as for python -m.")
]
Network: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME|FILE", help="A preset (testbed network) or a network file.")
]
CollectiveOf: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="By default all_reduce, or else the first it is shipped for."),
]
SizeFactor: TypeAlias = Annotated[
    int, typer.Option(metavar="N", max=MAX_COUNT, help="Step of a range of sizes.")
]
Port: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Where ranks that are processes meet; by default one that is free."),
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="A Dask scheduler whose workers do it, such as tcp://10.0.0.1:8786."
    ),
]
TraceFile: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write what happened when, for https://ui.perfetto.dev.")
]
DeviceThreads: TypeAlias = Annotated[
    int, typer.Option(min=1, max=1024, help="--device: threads of the processor that the file is of.")
]
PredictionsFile: TypeAlias = Annotated[
    Path, typer.Option(metavar="FILE", help="--device: where predictions stand before measuring.")
]
TimeLimit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--time-limit", metavar="TIME", help="Give what is there after so many seconds: 60, 60s or 500ms."
    ),
]
WORLD_SIZES = "World sizes: 8, 2,4,8, 2-64 (every one), 1-1024x2 (doubling)."
"""What `testbed.options.arguments.parse_ranks` reads."""


@dataclass(frozen=True)
class TableOptions:
    """Options for what a table of measured collectives leaves out.

    Attributes:
        collective: What was measured, where the table does not say.
        ranks: On how many ranks, where the table does not say.
        nodes: On how many nodes, where the table does not say.
    """

    collective: Annotated[str | None, typer.Option(metavar="NAME")] = None
    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None
    nodes: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None
