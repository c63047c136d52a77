"""Scenarios: a topology under conditions."""

from sim.scenario.scenario import Setting

__all__ = ["Setting"]
