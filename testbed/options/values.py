"""Values that no option takes, and files that are of another tool than it expects.

Numbers that are not finite, text with control characters and named pipes are refused in one place for all
commands, before any of their work.  A terminal obeys what it is told by control characters, so names that
hold some reach neither what is printed nor an error.  A named pipe without a writer would be waited for
without a word; those of ``<(command)`` have no name, and one end.

Files of other tools are known by how they begin, for errors where a file of ours was expected.
"""

from __future__ import annotations

import functools
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from typer.core import TyperCommand

from testbed.errors import UsageError

ARGUMENTS = "arguments"
"""Of a script: they go to it as they are."""

NAMED_PIPE = "this is a named pipe; give a file, or <(command)"
"""Why the name of a pipe is refused."""

P = ParamSpec("P")
T = TypeVar("T")
HEAD_BYTES = 1 << 16
"""So much of a file is looked at."""
_NOT_READ = "nothing here reads it"
_AS_TABLE = "say the same in CSV with the columns size_bytes and time_us (docs/files.md)"
_AS_NETWORK = "say the same in a network file (TOML, docs/networks.md)"


def check_values(command: TyperCommand, values: Mapping[str, Any]) -> None:
    """Check what was given for the parameters of *command*.

    Args:
        command: whose parameters these are.
        values: by name.

    Raises:
        UsageError: a number is not finite, a text holds control characters, or an input is a named pipe.
    """
    for parameter in command.params:
        given = values.get(parameter.name or "")
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar)
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{option} {value}: expected a finite number")
            if parameter.name == ARGUMENTS or not isinstance(value, str | Path):
                continue
            if has_controls(str(value)):
                raise UsageError(f"{option}: expected no control characters, got {ascii(str(value))[:200]}")
            for name in parts_of(str(value)):
                if is_named_pipe(name):
                    raise UsageError(f"{option} {name}: {NAMED_PIPE}")


def parts_of(value: str) -> list[str]:
    """Return what in *value* may be the name of a file, as in ``auto:table=FILE``."""
    return [name for name in dict.fromkeys([value, *re.split("[=,:@]", value)]) if name]


def is_named_pipe(name: str) -> bool:
    """Return whether *name* is that of a pipe, and not of one that the shell has opened (``/dev/fd/63``)."""
    try:
        return stat.S_ISFIFO(os.stat(name).st_mode) and os.path.exists(os.path.realpath(name))
    except (OSError, ValueError):
        return False


def has_controls(text: str) -> bool:
    """Return whether *text* holds characters that a terminal obeys instead of showing them."""
    return any(unicodedata.category(sign) == "Cc" for sign in text)


@dataclass(frozen=True)
class Foreign:
    """A kind of file of another tool.

    Attributes:
        name: what it is.
        patterns: each of which is found in its first `HEAD_BYTES`.
        advice: what to do with it here.
        read_by: commands that read it, whose errors need no advice.
    """

    name: str
    patterns: tuple[bytes, ...]
    advice: str
    read_by: tuple[str, ...] = ()

    def describes(self, head: bytes) -> bool:
        """Return whether a file that begins with *head* is one."""
        return all(re.search(pattern, head, re.MULTILINE) for pattern in self.patterns)


KINDS = (
    Foreign(
        "an MSCCL program (XML)",
        (rb"<algo\s",),
        "it is an ALGORITHM of verify, simulate and bench",
        read_by=("verify", "simulate", "bench", "export", "show"),
    ),
    Foreign("an NCCL topology (XML, NCCL_TOPO_DUMP_FILE)", (rb"<system\b",), _AS_NETWORK),
    Foreign("an NCCL graph (XML, NCCL_GRAPH_DUMP_FILE)", (rb"<graphs\b",), _NOT_READ),
    Foreign(
        "an MSCCL++ plan (JSON)",
        (rb'"gpus"\s*:', rb'"threadblocks"\s*:'),
        "export writes such plans, and nothing reads them",
    ),
    Foreign(
        "a Kineto trace (torch.profiler)",
        (rb'"schemaVersion"\s*:', rb'"(traceEvents|deviceProperties)"'),
        _NOT_READ,
    ),
    Foreign("a Chrome trace", (rb'"traceEvents"\s*:',), "open it at ui.perfetto.dev"),
    Foreign(
        "a flight-recorder dump of torch (pickle)",
        (rb"\A\x80", rb"pg_config|pg_status|profiling_name"),
        _NOT_READ,
    ),
    Foreign("a flight-recorder dump of torch (JSON)", (rb'"pg_config"\s*:',), _NOT_READ),
    Foreign("a Chakra execution trace (protobuf)", (rb"\A.{1,2}\n.\d+\.\d+\.\d+",), _NOT_READ),
    Foreign(
        "a PyTorch execution trace (JSON)", (rb'"schema"\s*:\s*"[^"]*chakra', rb'"nodes"\s*:'), _NOT_READ
    ),
    Foreign("an ASTRA-sim network (YAML)", (rb"^\s*npus_count\s*:",), _AS_NETWORK),
    Foreign("an ASTRA-sim system (JSON)", (rb'"all-reduce-implementation"\s*:',), _NOT_READ),
    Foreign("an ns-3 topology", (rb"\A\d+ \d+ \d+", rb"^\d+ \d+ [\d.]+[GM]bps "), _AS_NETWORK),
    Foreign("a matrix of nvidia-smi topo -m", (rb"^\s*GPU0\s+GPU1\s",), _AS_NETWORK),
    Foreign("a report of the OSU micro-benchmarks", (rb"^# OSU ",), _AS_TABLE),
    Foreign("a report of perftest (ib_write_bw)", (rb"#bytes\s+#iterations\s",), _AS_NETWORK),
    Foreign("an SQLite database (nsys export)", (rb"\ASQLite format 3",), _NOT_READ),
    Foreign("a file compressed by gzip", (rb"\A\x1f\x8b",), "unpack it first"),
    Foreign(
        "a log of nccl-tests",
        (rb"#\s+size\s+count\s",),
        "testbed calibrate --from and testbed validate --table read it",
        read_by=("calibrate", "validate"),
    ),
)
"""Kinds that are known, the first that describes a file counts."""


def naming_foreign_files(function: Callable[P, T]) -> Callable[P, T]:
    """Let the errors of *function* say which of the files that it was given are of another tool."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            for path in _paths((*args, *kwargs.values())):
                kind = foreign_kind(path) if path in str(error) else None
                if kind is not None and function.__name__ not in kind.read_by:
                    error.add_note(f"{path} looks like {kind.name}: {kind.advice}")
            raise

    return called


def foreign_kind(path: str) -> Foreign | None:
    """Return the kind of the file at *path*; None: it is of none that is known, or cannot be read."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return None
    return next((kind for kind in KINDS if kind.describes(head)), None)


def _paths(values: Iterable[object]) -> Iterator[str]:
    """Yield what among *values*, and in lists of them, may be a path; each once."""
    each = [one for value in values for one in (value if isinstance(value, list | tuple) else (value,))]
    yield from dict.fromkeys(os.fspath(one) for one in each if isinstance(one, str | Path) and str(one))
