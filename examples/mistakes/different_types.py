"""Mistake: one rank counts in float64, as ``torch.tensor`` of a NumPy number does, the others in float32.

Class: parameter matching
To name: rank 1; dist.all_reduce(total)
"""

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
accuracy = np.float64(0.75) if dist.get_rank() == 1 else 0.75
total = torch.tensor(accuracy).reshape(1)
dist.all_reduce(total)
