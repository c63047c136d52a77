"""Files of other tools, known by how they begin, for errors where a file of ours was expected."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

HEAD_BYTES = 1 << 16
"""So much of a file is looked at."""


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


_NOT_READ = "nothing here reads it"
_AS_NETWORK = "say the same in a network file (TOML, docs/networks.md)"
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
    Foreign("a flight-recorder dump of torch (pickle)", (rb"\A\x80", rb"pg_config|pg_status"), _NOT_READ),
    Foreign("a flight-recorder dump of torch (JSON)", (rb'"pg_config"\s*:',), _NOT_READ),
    Foreign("a Chakra execution trace (protobuf)", (rb"\A.{1,2}\n.\d+\.\d+\.\d+",), _NOT_READ),
    Foreign(
        "a PyTorch execution trace (JSON)", (rb'"schema"\s*:\s*"[^"]*chakra', rb'"nodes"\s*:'), _NOT_READ
    ),
    Foreign("an ASTRA-sim network (YAML)", (rb"^\s*npus_count\s*:",), _AS_NETWORK),
    Foreign("an ASTRA-sim system (JSON)", (rb'"all-reduce-implementation"\s*:',), _NOT_READ),
    Foreign("an ns-3 topology", (rb"\A\d+ \d+ \d+", rb"^\d+ \d+ [\d.]+[GM]bps "), _AS_NETWORK),
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
