"""Devices of ranks on a node: several that take part from one, which NCCL refuses, are told."""

from __future__ import annotations

import contextlib
import os
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given
from hypothesis import strategies as st

from collectives.virtual import run
from collectives.virtual.group import SAME_DEVICE
from sim import load_network
from sim.errors import RankError


def is_told(work, ranks, ranks_per_node):
    """Return whether a run of *work* says that ranks share a device."""
    network = load_network("dgx-h100").overridden({"ranks_per_node": ranks_per_node}).topology(ranks)
    return any(SAME_DEVICE in notice for notice in run(work, network=network).report.notices)


@given(
    st.data(),
    st.integers(2, 6),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["tensor", "current", "objects"]),
)
def test_ranks_of_a_node_that_call_nccl_from_one_device_are_told(data, ranks, per_node, way):
    devices = [data.draw(st.integers(0, min(per_node, ranks) - 1)) for _ in range(ranks)]
    members = sorted(data.draw(st.sets(st.integers(0, ranks - 1), min_size=2)))

    def work(rank):
        dist.init_process_group("nccl")
        group = dist.new_group(members)
        if rank not in members:
            return
        if way == "tensor":
            dist.all_reduce(torch.ones(1, device=f"cuda:{devices[rank]}"), group=group)
            return
        torch.cuda.set_device(devices[rank])
        if way == "current":
            dist.all_reduce(torch.ones(1, device="cuda"), group=group)
        else:
            dist.all_gather_object([None] * len(members), rank, group=group)

    places = [(rank // per_node, devices[rank]) for rank in members]

    assert is_told(work, ranks, per_node) == (len(set(places)) < len(places))


@given(st.permutations(range(4)), st.booleans(), st.sampled_from([{}, {"CUDA_VISIBLE_DEVICES": "7"}]))
@example([0, 1, 2, 3], True, {"CUDA_VISIBLE_DEVICES": "0"})
def test_a_rank_that_sees_one_device_calls_it_by_its_first_number(order, sees_one, inherited):
    def work(rank):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
        os.environ["CUDA_VISIBLE_DEVICES"] = str(order[rank]) if sees_one else ",".join(map(str, order))
        dist.init_process_group("nccl")
        dist.all_reduce(torch.ones(1, device="cuda"))
        assert torch.cuda.device_count() == (1 if sees_one else 4)

    with mock.patch.dict(os.environ, inherited):
        assert is_told(work, 4, 4) == (not sees_one)


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["tensor", "objects"]), st.booleans())
def test_a_group_that_is_bound_to_a_device_takes_what_is_on_it(bound, device, way, is_lenient):
    def work(rank):
        dist.init_process_group("nccl", device_id=torch.device("cuda", (bound + rank) % 4))
        torch.cuda.set_device((device + rank) % 4)
        if way == "tensor":
            dist.all_reduce(torch.ones(1, device="cuda"))
        else:
            dist.broadcast_object_list([rank])
        dist.destroy_process_group()
        dist.init_process_group("nccl")
        dist.all_reduce(torch.ones(1, device=f"cuda:{(device + rank) % 4}"))

    refused = pytest.raises(RankError, match=rf"cuda:{device}, .* device_id cuda:{bound}")
    with contextlib.nullcontext() if bound == device or is_lenient else refused:
        run(work, ranks=4, network="dgx-h100", lenient=is_lenient)


def test_a_rank_that_sees_no_device_has_no_cuda():
    def work(rank):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return torch.cuda.is_available(), torch.cuda.device_count()

    assert run(work, ranks=2, network="dgx-h100").results == [(False, 0)] * 2
