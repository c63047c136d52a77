"""A test of distributed code without processes or GPUs: each test function runs as four ranks.

pytest examples/test_mean.py
"""

import torch
import torch.distributed as dist

from testbed.testing import on_ranks


@on_ranks(4)
def test_the_mean_is_that_of_all_ranks(rank):
    dist.init_process_group()
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    assert total / dist.get_world_size() == 1.5
