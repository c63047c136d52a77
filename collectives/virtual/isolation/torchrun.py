"""Environment variables by which ``torchrun`` tells a process its rank."""

from __future__ import annotations

from sim.topology import Topology


def variables_of(rank: int, topology: Topology) -> dict[str, str]:
    """Return the variables that ``torchrun`` sets for *rank* of a cluster with one agent on each node."""
    num_ranks, ranks_per_node = topology.num_ranks, topology.ranks_per_node
    node, local_rank = divmod(rank, ranks_per_node)
    values = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": num_ranks,
        "LOCAL_WORLD_SIZE": min(ranks_per_node, num_ranks - node * ranks_per_node),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-num_ranks // ranks_per_node),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": num_ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
        "OMP_NUM_THREADS": 1,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
    }
    return {name: str(value) for name, value in values.items()}
