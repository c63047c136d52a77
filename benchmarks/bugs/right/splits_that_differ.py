"""Right: ranks tell each other first how much they send."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
given = [1, 3] if rank == 0 else [2, 2]
counts = torch.empty(2, dtype=torch.int64)
dist.all_to_all_single(counts, torch.tensor(given))
expected = counts.tolist()
sent, received = torch.ones(4), torch.empty(sum(expected))
dist.all_to_all_single(received, sent, expected, given)
