"""Coflows: messages that set out together, timed together."""

from sim.network.coflow.coflow import MAX_CLASSES, Coflow

__all__ = ["MAX_CLASSES", "Coflow"]
