"""Data-parallel training: when to reduce which gradients.  Open `ddp.reducer` first.

Importing this package imports no torch; the first use of a name imports what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp.data_parallel import DistributedDataParallel
    from ddp.drivers.simulated import simulate_step
    from ddp.overlapped_optimizer import OverlappedOptimizer
    from ddp.profile import Profile, load_profile
    from ddp.recording import record, record_profile
    from ddp.step_run import StepRun

_HOMES = {
    "DistributedDataParallel": "ddp.data_parallel",
    "OverlappedOptimizer": "ddp.overlapped_optimizer",
    "Profile": "ddp.profile",
    "StepRun": "ddp.step_run",
    "load_profile": "ddp.profile",
    "record": "ddp.recording",
    "record_profile": "ddp.recording",
    "simulate_step": "ddp.drivers.simulated",
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
