"""Backends that a script names: what they refuse or get wrong does not pass in virtual time."""

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import Roofline
from sim import RankError
from tests.collectives.virtual.clusters import in_group


def integers(dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(3, dtype=dtype)


def number() -> torch.Tensor:
    return torch.ones(2) * 1j


def turned(device: str = "cpu") -> torch.Tensor:
    """Return a matrix whose rows lie side by side."""
    return torch.ones(4, 6, device=device).t()


REFUSED = {
    "a dtype": ("gloo", lambda rank: dist.all_reduce(integers(torch.int16)), "gloo has no all_reduce"),
    "strides": (
        "gloo", lambda rank: dist.all_reduce(torch.ones(4, 6)[:, ::2]), "gloo takes the wrong elements",
    ),
    "a gather": (
        "gloo", lambda rank: dist.gather(number(), None if rank else [number(), number()]),
        "gloo has no gather of complex",
    ),
    "a factor": (
        "gloo", lambda rank: dist.all_reduce(torch.ones(2), dist._make_nccl_premul_sum(2.0)),
        "gloo has no PREMUL_SUM",
    ),
    "a message": (
        "gloo", lambda rank: (dist.recv if rank else dist.send)(turned(), 1 - rank),
        "gloo refuses a tensor of shape .* in a message",
    ),
    "a reduction": (
        "nccl", lambda rank: dist.all_reduce(integers(torch.int32), dist.ReduceOp.BOR),
        "nccl has no reduction by BOR",
    ),
    "a part of another shape": (
        "gloo", lambda rank: dist.all_gather_single(torch.ones(2, 3), torch.ones(3)),
        "gloo refuses all_gather_single of tensors of shapes",
    ),
    "a monitored barrier": ("nccl", lambda rank: dist.monitored_barrier(), "nccl has no monitored_barrier"),
    "strides on a GPU": (
        "cpu:gloo,cuda:nccl", lambda rank: dist.broadcast(turned("cuda"), 0),
        "nccl refuses a tensor of shape",
    ),
}  # fmt: skip


def on_two_ranks(backend: str, call, **options):
    """Run *call* on two ranks with GPUs, in a group of *backend*."""

    return in_group(call, 2, backend, compute=Roofline("h100"), **options)


@pytest.mark.parametrize(("backend", "call", "said"), REFUSED.values(), ids=REFUSED)
def test_what_the_named_backend_refuses_or_gets_wrong_is_refused_unless_the_run_is_lenient(
    backend, call, said
):
    with pytest.raises(RankError, match=said):
        on_two_ranks(backend, call)
    on_two_ranks(backend, call, lenient=True)


@pytest.mark.parametrize(("backend", "lenient"), [("gloo", False), ("gloo", True), ("nccl", False)])
def test_whoever_waits_for_a_message_over_gloo_by_looking_waits_for_ever(backend, lenient):
    def work(rank):
        call = dist.irecv(torch.ones(3), 1) if rank == 0 else dist.isend(torch.ones(3), 0)
        while not call.is_completed():
            pass
        return call.wait() is not None and call.is_completed()

    if backend == "gloo" and not lenient:
        with pytest.raises(RankError, match="never turns true before wait"):
            in_group(work, 2)
    else:
        assert in_group(work, 2, backend, lenient=lenient).results == [True, True]


def test_what_nccl_moves_otherwise_or_does_not_know_is_named():
    def call(rank):
        (dist.recv if rank else dist.send)(turned("cuda"), 1 - rank)
        dist.all_reduce(torch.ones(3))

    notices = "\n".join(on_two_ranks("nccl", call).report.notices)

    assert "in the order of the sender's memory" in notices
    assert "nccl refuses tensors of the CPU" in notices


def test_objects_over_nccl_are_not_taken_for_tensors_of_the_cpu():
    def call(rank):
        torch.cuda.set_device(0)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        dist.broadcast_object_list(objects)
        assert [own["rank"] for own in objects] == [0, 1]

    assert "nccl refuses" not in "\n".join(on_two_ranks("nccl", call).report.notices)


def test_a_sparse_sum_over_gloo_is_of_ranks_that_hold_other_elements():
    def work(rank: int) -> list[float]:
        held = torch.arange(rank + 1)
        tensor = torch.sparse_coo_tensor(held[None], torch.ones(len(held)), (4,), check_invariants=True)
        dist.all_reduce(tensor)
        return tensor.to_dense().tolist()

    assert in_group(work, 3).results == [[3, 2, 1, 0]] * 3
