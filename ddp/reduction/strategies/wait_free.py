"""Wait-free backpropagation: a bucket goes as soon as it, and all buckets before it, are complete.

It promises: never slower than `after_backward` with the same buckets.

Sources: Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on
GPU Clusters", USENIX ATC 2017, section 3.1; with buckets: Li et al., "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training", VLDB 13(12), 2020, section 3.2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp.reduction.strategies.strategy import Strategy


@dataclass(frozen=True)
class WaitFree(Strategy):
    """Buckets of torch's DDP, each as soon as it may go; see the module's docstring."""

    kind = "wait_free"
