"""Passes of ranks: steps of optimizers are followed on each thread, whichever ranks come and go meanwhile."""

import torch
from torch import nn

from collectives.virtual import run
from collectives.virtual.computation import Roofline, compute

DEVICES = "cu" + "da"  # the word itself in this module would give every rank such devices from its beginning


def test_a_rank_may_end_while_another_waits_in_a_step_of_its_optimizer() -> None:
    def work(rank: int) -> None:
        if rank == 0:
            getattr(torch, DEVICES).synchronize()
            compute("1s")
        model = nn.Linear(16, 16)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()

    outcome = run(work, 2, "dgx-h100", compute=Roofline("h100"))

    assert outcome.times_ps[1] < outcome.times_ps[0]
