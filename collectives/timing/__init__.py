"""The time of collectives on a simulated network: how long they take, and why.

    simulation      the one door: a question's time, by the engine that answers it (open first)
    assumptions     what code adds to the wire, and what a real run on a network would do
    job             a collective that is asked for, and as it is planned
    closed_forms    times that need no run; formulas/ has them
    cost            what algorithms cost, and the cheapest; floor: below which none can be
    queues          the collectives of a communicator, by any of three engines
    rows/           engines makespan and events: step k of all ranks at once
    ranks/          engine ranks: each rank by itself, as live ranks go
    observation     what ranks and links did, and when

The engines evaluate the programs that are proved and run for real; where several apply they agree to the
picosecond (``tests/collectives/timing/test_engines.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.lazy_names import lazy_names

if TYPE_CHECKING:
    from collectives.catalogue.selectors import NVLS as NVLS
    from collectives.timing.assumptions import Assumptions as Assumptions
    from collectives.timing.assumptions import Software as Software
    from collectives.timing.assumptions import default_algorithm as default_algorithm
    from collectives.timing.assumptions import default_model as default_model
    from collectives.timing.assumptions import default_transport_model as default_transport_model
    from collectives.timing.job import Job as Job
    from collectives.timing.job import PlannedJob as PlannedJob
    from collectives.timing.job import plan as plan
    from collectives.timing.simulation import Engine as Engine
    from collectives.timing.simulation import evaluate as evaluate
    from collectives.timing.simulation import network_for as network_for
    from collectives.timing.simulation import simulate as simulate
    from collectives.timing.simulation import simulate_jobs as simulate_jobs
    from collectives.timing.simulation import with_engine as with_engine

__getattr__, __dir__, __all__ = lazy_names(__name__)
