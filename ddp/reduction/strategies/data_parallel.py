"""``torch.nn.DataParallel``: one replica holds the model, and gets everybody's gradients.

In each iteration the gradients are reduced to the first replica when the whole backward pass has ended; its
optimizer alone updates the model, which is broadcast to the others.  Nothing overlaps, and the model travels
twice through the first replica.  The baseline that `DistributedDataParallel` replaced.

Rank r stands for device r, so it trains on any group, on CPUs too, and the optimizer's state is that of
rank 0.  Against the original:

* A replica is a process, not a thread of one.  So no interpreter is shared by all devices.
* Every rank has inputs of its own and computes its own loss.  The original scatters inputs from the first
  device, gathers outputs there, and computes the loss there.
* The model is broadcast at the end of the step, not at the beginning of the next forward pass: the same
  bytes at the same time, but once for each step, where the original broadcasts in every forward pass, in
  evaluation and accumulation too.
* All gradients of a dtype are one message, as are all parameters; the original cuts them at 10 MiB.

What is left out makes the prediction optimistic.

Source: ``torch/nn/parallel/{data_parallel,replicate,_functions}.py`` of torch 2.13 (``Broadcast``,
``ReduceAddCoalesced``).
"""

from __future__ import annotations

from dataclasses import dataclass

from ddp.reduction.strategies.plan import BROADCAST, REDUCE, Layout, Plan, PlannedLaunch
from ddp.reduction.strategies.strategy import Barrier, Situation, Strategy

ONE_BUFFER = 2**62


@dataclass(frozen=True)
class DataParallel(Strategy):
    """See the module's docstring."""

    kind = "data_parallel"
    update_after = REDUCE
    updates_on_root = True
    plans_once = True

    @property
    def barrier(self) -> Barrier:
        """Before what a rank waits until its buckets have arrived."""
        return Barrier.STEP

    def plan(self, layout: Layout) -> Plan:
        """Plan a reduction and a broadcast of all parameters of a dtype; caps do not matter."""
        buckets = Layout(layout.nbytes, layout.keys, (ONE_BUFFER,), layout.order).buckets()
        numbers = range(len(buckets))
        launches = [PlannedLaunch(n, REDUCE) for n in numbers] + [
            PlannedLaunch(n, BROADCAST) for n in numbers
        ]
        return Plan.of_whole_buffers(buckets, launches)

    def choose(self, situation: Situation) -> int:
        """Launch everything at the end of the backward pass, and nothing before."""
        return len(situation.ready) if situation.backward_ended else 0
