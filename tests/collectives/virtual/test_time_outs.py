"""Time-outs that a run reaches: ranks that come later than their group waits."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import MessageDelay, Roofline, run
from tests.given import switch

MINUTE = 60


def comes_late(seconds: int, backend: str, given: timedelta | None, message: bool):
    """Return what ranks do of which rank 1 comes late to the second call."""

    def work(rank):
        dist.init_process_group(backend, timeout=given)
        tensor = torch.ones(4, device="cuda" if backend == "nccl" else "cpu")
        dist.all_reduce(tensor)
        if rank == 1:
            time.sleep(seconds)
        if not message:
            dist.all_reduce(tensor)
        elif rank == 0:
            dist.recv(tensor, 1)
        elif rank == 1:
            dist.send(tensor, 0)

    return work


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
    compute = Roofline("h100") if backend == "nccl" else None

    def of(lateness):
        work = comes_late(lateness, backend, given, message)
        return run(work, 3, network=switch(3), compute=compute, conditions=conditions)

    of(seconds - 1)
    with pytest.raises(Exception, match=f"rank 1 comes to .* {seconds + 1} s after rank 0") as caught:
        of(seconds + 1)
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"the group waits for {seconds} s" in said
    assert f"after it slept {seconds + 1} s at test_time_outs.py" in said


@pytest.mark.parametrize("compute", [None, Roofline("h100")], ids=["CPU", "GPU"])
@pytest.mark.parametrize("posted", ["irecv", "isend"])
def test_over_gloo_a_message_may_be_posted_long_before_its_rank_waits_for_it(posted, compute):
    def work(rank):
        dist.init_process_group("gloo")
        tensor = torch.ones(4)
        if rank == 0:
            message = getattr(dist, posted)(tensor, 1)
            time.sleep(59 * MINUTE)
            message.wait()
        else:
            time.sleep(60 * MINUTE)
            (dist.send if posted == "irecv" else dist.recv)(tensor, 0)

    run(work, 2, network=switch(2), compute=compute)


@pytest.mark.parametrize(
    ("backend", "device", "waits_after", "late"), [("gloo", "cpu", 1, 3540), ("nccl", "cuda", 59, 3600)]
)
def test_a_message_counts_from_its_wait_over_gloo_and_from_its_call_over_nccl(
    backend, device, waits_after, late
):
    def work(rank):
        dist.init_process_group(backend)
        tensor = torch.ones(4, device=device)
        if rank == 0:
            message = dist.irecv(tensor, 1)
            time.sleep(waits_after * MINUTE)
            message.wait()
        else:
            time.sleep(60 * MINUTE)
            dist.send(tensor, 0)

    with pytest.raises(Exception, match=rf"rank 1 comes to message .* {late} s after rank 0"):
        run(work, 2, network=switch(2), compute=Roofline("h100") if device == "cuda" else None)
