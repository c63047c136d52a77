"""Rank threads in virtual time.  Open `cluster` first."""

from sim.cluster.cluster import Cluster, RankContext, RankThread, RankUnwound

__all__ = ["Cluster", "RankContext", "RankThread", "RankUnwound"]
