"""Scenarios: a topology under conditions."""

from sim.scenario.scenario import Scenario

__all__ = ["Scenario"]
