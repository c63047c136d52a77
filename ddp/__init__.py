"""Data-parallel training: when to reduce which gradients.  Open `ddp.reduction.reducer` first.

Importing this package imports no torch; the first use of a name imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.lazy_names import lazy_names

if TYPE_CHECKING:
    from ddp.profiles import Profile as Profile
    from ddp.profiles import load_profile as load_profile
    from ddp.recording import record as record
    from ddp.recording import record_profile as record_profile
    from ddp.reduction.strategies.plan import Layout as Layout
    from ddp.reduction.strategies.plan import Plan as Plan
    from ddp.reduction.strategies.strategy import Situation as Situation
    from ddp.reduction.strategies.strategy import Strategy as Strategy
    from ddp.step.simulated_step import simulate_step as simulate_step
    from ddp.step.step_run import StepRun as StepRun
    from ddp.training.data_parallel import DistributedDataParallel as DistributedDataParallel
    from ddp.training.overlapped_optimizer import OverlappedOptimizer as OverlappedOptimizer

__getattr__, __dir__, __all__ = lazy_names(__name__)
