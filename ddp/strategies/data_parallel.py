"""``torch.nn.DataParallel``: one process drives all devices, and the first of them holds the model.

In each iteration the model is broadcast from the first device to all, and the gradients are reduced to
the first, where the optimizer updates it.  Nothing overlaps: all parameters are copied by one operation
before the forward pass, whose backward begins when all gradients are there.  The baseline that
`DistributedDataParallel` replaced.

Left out, so that the prediction is optimistic: inputs and outputs, which are scattered from and gathered on
the first device; that one interpreter drives all devices; the loss computed on the first device alone.

Source: ``torch/nn/parallel/{data_parallel,replicate,_functions}.py`` of torch 2.13 (``Broadcast``,
``ReduceAddCoalesced``).
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp.strategies.plan import BROADCAST, REDUCE, Launch, Layout, Plan
from ddp.strategies.strategy import Barrier, Situation, Strategy

ONE_BUFFER = 2**62


@dataclass(frozen=True)
class DataParallel(Strategy):
    """See the module's docstring."""

    kind = "data_parallel"
    update_after = REDUCE
    only_simulated = "it is one process that drives all devices: use torch.nn.DataParallel"

    @property
    def barrier(self) -> Barrier:
        """Before what a rank waits until its buckets have arrived."""
        return Barrier.STEP

    def plan(self, layout: Layout) -> Plan:
        """Plan a reduction and a broadcast of all parameters of a dtype; caps do not matter."""
        buckets = Layout(layout.nbytes, layout.keys, (ONE_BUFFER,), layout.order).buckets()
        numbers = range(len(buckets))
        launches = [Launch(n, REDUCE) for n in numbers] + [Launch(n, BROADCAST) for n in numbers]
        return Plan.of_whole_buffers(buckets, launches)

    def choose(self, situation: Situation) -> int:
        """Launch everything at the end, and nothing before."""
        return len(situation.ready) if situation.backward_ended else 0
