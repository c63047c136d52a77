"""Collective algorithms as programs, proved without data and run over any transport.

Open `collectives.program.program` first.  Every name is imported when it is first used: torch loads
this package in each of its processes (see `collectives.autoload`), and proofs need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.catalogue.resolve import algorithm_names, resolve_algorithm
    from collectives.catalogue.verification import verify
    from collectives.communicators.communicator import Communicator
    from collectives.communicators.connection import connect
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
    from collectives.program import Algorithm, Copy, Cost, Recv, RecvReduce, Reduce, Send, Step, algorithm
    from collectives.proof import Proof
    from collectives.simulation import simulate, simulate_jobs
    from collectives.simulation.job import Job
    from collectives.simulation.run import Run

__version__ = "0.1.0"

_NAMES = {
    "communicators.communicator": ("Communicator",),
    "communicators.connection": ("connect",),
    "errors": (
        "AlgorithmFileError",
        "CollectiveError",
        "CollectiveTimeoutError",
        "MismatchError",
        "NotExactError",
        "NotSupportedError",
        "ProgramError",
        "UnknownAlgorithmError",
    ),
    "simulation.job": ("Job",),
    "program": ("Algorithm", "Copy", "Cost", "Recv", "RecvReduce", "Reduce", "Send", "Step", "algorithm"),
    "proof": ("Proof",),
    "catalogue.verification": ("verify",),
    "catalogue.resolve": ("algorithm_names", "resolve_algorithm"),
    "simulation.run": ("Run",),
    "simulation": ("simulate", "simulate_jobs"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Algorithm",
    "AlgorithmFileError",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Communicator",
    "Copy",
    "Cost",
    "Job",
    "MismatchError",
    "NotExactError",
    "NotSupportedError",
    "ProgramError",
    "Proof",
    "Recv",
    "RecvReduce",
    "Reduce",
    "Run",
    "Send",
    "Step",
    "UnknownAlgorithmError",
    "algorithm",
    "algorithm_names",
    "connect",
    "resolve_algorithm",
    "simulate",
    "simulate_jobs",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
