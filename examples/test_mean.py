"""A test of distributed code without processes or GPUs: each test function runs as four ranks.

pytest examples/test_mean.py
"""

import torch
import torch.distributed as dist

from testbed.testing import on_ranks


def mean_over_ranks(value):
    total = torch.tensor(float(value))
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


@on_ranks(4)
def test_the_mean_is_that_of_all_ranks(rank):
    dist.init_process_group()
    assert mean_over_ranks(rank) == 1.5
