"""Coflows: messages that set out together, timed together."""

from sim.network.coflow.accelerator import CoflowAccelerator
from sim.network.coflow.coflow import MAX_CLASSES, Coflow
from sim.network.coflow.launch import Attempts, CoflowLaunch

__all__ = ["MAX_CLASSES", "Attempts", "Coflow", "CoflowAccelerator", "CoflowLaunch"]
