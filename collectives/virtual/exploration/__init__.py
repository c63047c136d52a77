"""Exploration of all orders of events that a program can tell apart.  Open `search` first."""

from collectives.virtual.exploration.cluster import ClusterOrders, Exploration
from collectives.virtual.exploration.search import explore

__all__ = ["ClusterOrders", "Exploration", "explore"]
