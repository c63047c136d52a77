"""Time-outs that a run reaches: ranks that come later than their group waits."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import MessageDelay, Roofline, run
from tests.given import switch

MINUTE = 60
MODELS = {"gloo": None, "nccl": Roofline("h100")}
DEVICES = {"gloo": "cpu", "nccl": "cuda"}
LIMITS = {
    "gloo": ("gloo", None, 30 * MINUTE),
    "nccl": ("nccl", None, 10 * MINUTE),
    "gloo, as long as its default": ("gloo", timedelta(minutes=30), 30 * MINUTE),
    "nccl, longer": ("nccl", timedelta(minutes=30), 30 * MINUTE),
    "nccl, shorter": ("nccl", timedelta(seconds=90), 90),
}


@pytest.mark.parametrize("message", [False, True])
@pytest.mark.parametrize("conditions", [(), (MessageDelay("1us"),)], ids=["calm", "late messages"])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_rank_that_is_later_than_its_group_waits_ends_the_run(limit, conditions, message):
    backend, given, seconds = limit

    def comes_late(lateness):
        """Run ranks of which rank 1 comes so much late to the second call."""

        def work(rank):
            dist.init_process_group(backend, timeout=given)
            tensor = torch.ones(4, device=DEVICES[backend])
            dist.all_reduce(tensor)
            if rank == 1:
                time.sleep(lateness)
            if not message:
                dist.all_reduce(tensor)
            elif rank < 2:
                (dist.send if rank else dist.recv)(tensor, 1 - rank)

        run(work, 3, network=switch(3), compute=MODELS[backend], conditions=conditions)

    comes_late(seconds - 1)
    with pytest.raises(Exception, match=f"rank 1 comes to .* {seconds + 1} s after rank 0") as caught:
        comes_late(seconds + 1)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"the group waits for {seconds} s" in said
    assert f"after it slept {seconds + 1} s at test_time_outs.py" in said


def posted_and_waited_for(posted: str, backend: str, minutes: int, compute) -> None:
    """Let rank 0 post a message and wait for it so much later; rank 1 comes to it after an hour."""

    def work(rank):
        dist.init_process_group(backend)
        tensor = torch.ones(4, device=DEVICES[backend])
        if rank == 0:
            message = getattr(dist, posted)(tensor, 1)
            time.sleep(minutes * MINUTE)
            message.wait()
        else:
            time.sleep(60 * MINUTE)
            (dist.send if posted == "irecv" else dist.recv)(tensor, 0)

    run(work, 2, network=switch(2), compute=compute)


@pytest.mark.parametrize("compute", MODELS.values(), ids=["CPU", "GPU"])
@pytest.mark.parametrize("posted", ["irecv", "isend"])
def test_over_gloo_a_message_may_be_posted_long_before_its_rank_waits_for_it(posted, compute):
    posted_and_waited_for(posted, "gloo", 59, compute)


@pytest.mark.parametrize(("backend", "minutes", "late"), [("gloo", 1, 3540), ("nccl", 59, 3600)])
def test_a_message_counts_from_its_wait_over_gloo_and_from_its_call_over_nccl(backend, minutes, late):
    with pytest.raises(Exception, match=rf"rank 1 comes to message .* {late} s after rank 0"):
        posted_and_waited_for("irecv", backend, minutes, MODELS[backend])
