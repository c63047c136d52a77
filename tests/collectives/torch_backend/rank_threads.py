"""Rank threads inside a process group, for the tests of the backend."""

import torch.distributed as dist

from collectives.virtual import run_virtual
from tests.given import switch


def on_ranks(num_ranks, work):
    """Run *work* on every rank, inside a process group."""

    def run(rank):
        dist.init_process_group("testbed")
        try:
            return work(rank)
        finally:
            dist.destroy_process_group()

    return run_virtual(run, switch(num_ranks))
