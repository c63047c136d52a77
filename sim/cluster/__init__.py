"""Rank threads in virtual time.  Open `cluster` first."""

from sim.cluster.cluster import Cluster
from sim.cluster.order import Choices, Order, RandomOrder, Thing, Touch
from sim.cluster.rank_thread import RankThread, current_rank_thread
from sim.cluster.scheduler import RankContext, RankUnwound
from sim.cluster.surroundings import Surroundings

__all__ = [
    "Choices",
    "Cluster",
    "Order",
    "RandomOrder",
    "RankContext",
    "RankThread",
    "RankUnwound",
    "Surroundings",
    "Thing",
    "Touch",
    "current_rank_thread",
]
