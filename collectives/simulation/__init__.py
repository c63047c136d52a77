"""Collectives on a simulated network: how long they take, and why.  Open `simulation` first."""

from collectives.simulation.simulation import NVLS, Engine, network_for, simulate, simulate_jobs, with_engine

__all__ = ["NVLS", "Engine", "network_for", "simulate", "simulate_jobs", "with_engine"]
