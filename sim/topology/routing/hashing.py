"""One of several equal paths for each pair of ranks, by a seeded hash, as switches do (ECMP)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.topology.routing.protocol import Ranks

_MASK = 2**64 - 1


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


def _mixed(state: Any) -> Any:
    """Return the next output of splitmix64, for a Python int or an array of uint64."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
