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

from collectives.timing.assumptions import (
    Assumptions,
    Software,
    default_algorithm,
    default_model,
    default_transport_model,
)
from collectives.timing.closed_forms import NVLS
from collectives.timing.job import Job, PlannedJob, plan
from collectives.timing.simulation import (
    Engine,
    evaluate,
    network_for,
    simulate,
    simulate_jobs,
    with_engine,
)

__all__ = [
    "NVLS",
    "Assumptions",
    "Engine",
    "Job",
    "PlannedJob",
    "Software",
    "default_algorithm",
    "default_model",
    "default_transport_model",
    "evaluate",
    "network_for",
    "plan",
    "simulate",
    "simulate_jobs",
    "with_engine",
]
