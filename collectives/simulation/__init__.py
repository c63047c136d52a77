"""Collectives on a simulated network: how long they take, and why.  Open `simulation` first."""

from collectives.simulation.assumptions import (
    Assumptions,
    Software,
    default_algorithm,
    default_model,
    default_transport_model,
)
from collectives.simulation.closed_forms import NVLS
from collectives.simulation.job import Job, PlannedJob, plan
from collectives.simulation.simulation import (
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
