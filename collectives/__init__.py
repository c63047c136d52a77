"""Collective algorithms as programs, proved without data and run over any transport.

Open `collectives.program` first.  What needs torch or the simulator is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from collectives.errors import (
    AlgorithmFileError,
    CollectiveError,
    CollectiveTimeoutError,
    MismatchError,
    NotExactError,
    NotSupportedError,
    ProgramError,
    UnknownAlgorithmError,
)
from collectives.program import Algorithm, Copy, Cost, Recv, RecvReduce, Send, Step, algorithm
from collectives.resolve import algorithm_names, resolve_algorithm
from collectives.verify import Proof, verify

if TYPE_CHECKING:
    from collectives.communicator import Communicator
    from collectives.connection import connect
    from collectives.simulation import Run, simulate

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "AlgorithmFileError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "Copy",
    "Cost",
    "MismatchError",
    "NotExactError",
    "NotSupportedError",
    "ProgramError",
    "Proof",
    "Recv",
    "RecvReduce",
    "Run",
    "Send",
    "Step",
    "UnknownAlgorithmError",
    "algorithm",
    "algorithm_names",
    "connect",
    "resolve_algorithm",
    "simulate",
    "verify",
]

_LAZY = {
    "Communicator": "collectives.communicator",
    "connect": "collectives.connection",
    "Run": "collectives.simulation",
    "simulate": "collectives.simulation",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
