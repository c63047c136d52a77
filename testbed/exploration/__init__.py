"""Exploration of all orders of events that a program can tell apart.  Open `search` first."""

from testbed.exploration.cluster import ClusterOrders
from testbed.exploration.report import Exploration
from testbed.exploration.search import explore

__all__ = ["ClusterOrders", "Exploration", "explore"]
