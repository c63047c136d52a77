"""Scripts and tasks that several tests of virtual runs have in common."""

from __future__ import annotations

import textwrap
from pathlib import Path

import torch
import torch.distributed as dist

from sim.cluster import Cluster, RankThread


def script(tmp_path: Path, text: str) -> Path:
    """Write *text* as a script and return its path."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def all_reduce_once(rank: int) -> float:
    """Sum 400 floats of each rank, and return the first sum."""
    dist.init_process_group("gloo")
    tensor = torch.full((400,), float(rank))
    dist.all_reduce(tensor)
    return tensor[0].item()


def rank_thread() -> RankThread:
    """Return the rank whose thread this is."""
    current = Cluster.current()
    assert current is not None
    return current
