"""Data-parallel training: when to reduce which gradients.  Open `ddp.reduction.reducer` first.

Importing this package imports no torch; the first use of a name imports what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp.profiles import Profile, load_profile
    from ddp.recording import record, record_profile
    from ddp.simulation.simulated_step import simulate_step
    from ddp.simulation.step_run import StepRun
    from ddp.training.data_parallel import DistributedDataParallel
    from ddp.training.overlapped_optimizer import OverlappedOptimizer

_HOMES = {
    "DistributedDataParallel": "ddp.training.data_parallel",
    "OverlappedOptimizer": "ddp.training.overlapped_optimizer",
    "Profile": "ddp.profiles.profile",
    "StepRun": "ddp.simulation.step_run",
    "load_profile": "ddp.profiles.profile",
    "record": "ddp.recording.recording",
    "record_profile": "ddp.recording.recording",
    "simulate_step": "ddp.simulation.simulated_step",
}

__all__ = [
    "DistributedDataParallel",
    "OverlappedOptimizer",
    "Profile",
    "StepRun",
    "load_profile",
    "record",
    "record_profile",
    "simulate_step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddp' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
