"""DeepEP's dispatch and combine, by the token exchange in two levels of the presets' networks."""

from __future__ import annotations

from typing import Any

from benchmarks.lab.predicted.nodes import network_name, network_of
from benchmarks.lab.predicted.rows import Row
from collectives.timing.formulas.token_exchange import Exchanged, Way, exchange_us

NEEDED = ("gpu", "nodes", "gpus", "hidden", "tokens", "topk", "experts", "dispatch_sms", "combine_sms")
_MOST_NODES = 4
"""To which a token's experts were limited."""
_BEYOND: dict[Way, float] = {"dispatch": 2.65, "combine": 1.35}
"""By how much less of a rail messages got among more than four nodes of the cluster that was measured; of
combine the half of rows with most tokens got as little as dispatch, the others wait in the call before it."""


def predicted(row: Row) -> dict[str, Any]:
    """Return microseconds of both calls; `predicted` is dispatch."""
    nodes, gpus, hidden, tokens, topk, experts = (int(row[name]) for name in NEEDED[1:7])
    exchanged = Exchanged(tokens, hidden, topk, experts, gpus, gpus // nodes, _MOST_NODES)
    topology = network_of(network_name(row["gpu"])).topology(gpus)
    dispatch, combine = (
        exchange_us(way, exchanged, topology, int(row[f"{way}_sms"]), _BEYOND[way] if nodes > 4 else 1.0)
        for way in _BEYOND
    )
    return {"predicted": dispatch, "predicted_dispatch_us": dispatch, "predicted_combine_us": combine}
