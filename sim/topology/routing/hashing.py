"""One of several equal paths for each connection of two ranks, by a seeded hash, as switches do (ECMP).

What is hashed stands for the addresses and ports of a connection: source, destination and channel.  Two ranks
have one connection for each channel of a program (`collectives.program.channels`), as NCCL has one with a
queue pair, and so a port, of its own (``src/transport/net.cc``; NCCL_IB_QPS_PER_CONNECTION is 1); channel 0
where a program has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.errors import TopologyError
from sim.topology.routing.protocol import Ranks
from sim.units import parse_count

_MASK = 2**64 - 1
_RANK_BITS = 32


def spread(seed: int, choices: Ranks, *keys: Ranks) -> Ranks:
    """Return a number from 0 to ``choices - 1``, the same for the same *seed* and *keys*.

    The hash is splitmix64 (Steele, Lea and Flood, OOPSLA 2014), over one key after another; switches
    use hashes of their own.
    """
    state: Any = _mixed(seed & _MASK)
    for key in keys:
        state = _mixed(state ^ (key.astype(np.uint64) if isinstance(key, np.ndarray) else key))
    if isinstance(state, np.ndarray):
        return (state % np.asarray(choices, dtype=np.uint64)).astype(np.int64)
    return int(state % choices)


def connection(source: Ranks, channel: Ranks) -> Ranks:
    """Return the key of a rank's end of its connection *channel*; that of channel 0 is the rank."""
    return source + (channel << _RANK_BITS)


def _mixed(state: Any) -> Any:
    """Return the next output of splitmix64, for a Python int or an array of uint64."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def ecmp_seed(routing: str, known: Sequence[str], seed: int) -> int | None:
    """Return the seed of the hash that *routing* ``ecmp`` asks for, or None for another that is *known*.

    Raises:
        TopologyError: a routing that is not known, or a seed that is not a whole number.
    """
    if routing not in known:
        first = ", ".join(map(repr, known[:-1]))
        raise TopologyError(f"routing: expected {first} or {known[-1]!r}, got {routing!r}")
    return parse_count(seed, "seed", least=0) if routing == "ecmp" else None
