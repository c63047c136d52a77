"""The backend as torch sees it, on rank threads: what time calls take, and what is refused."""

import contextlib
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import _functional_collectives as functional

from collectives.torch_backend.rows import sizes_of
from collectives.virtual import run
from sim import Cluster, DeadlockError, RankError
from tests.collectives.torch_backend import torch_contract, torch_message_contract
from tests.collectives.torch_backend.rank_threads import on_ranks


@pytest.mark.costly
def test_torchs_entry_point_makes_the_backend_known_and_loads_nothing_slow():
    check = """
import sys, torch
before = set(sys.modules)
from _collective_testbed_entry import register_backend
register_backend()
register_backend()
assert torch.distributed.Backend.backend_list.count("testbed") == 1
loaded = {name.partition(".")[0] for name in sys.modules.keys() - before}
assert loaded == {"_collective_testbed_entry"}, loaded
"""
    environment = {
        **os.environ,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", check], check=True, env=environment)


def test_registering_never_raises(monkeypatch):
    from _collective_testbed_entry import register_backend

    monkeypatch.setitem(sys.modules, "torch.distributed", None)

    register_backend()


def exchange_of_parts(rank):
    given = [1, 1] if rank else [1, 2]
    dist.all_to_all_single(torch.zeros(2), torch.zeros(sum(given)), [1, 1], given)


def message_of_another_size(rank):
    if rank == 0:
        dist.send(torch.ones(4), 1)
    else:
        dist.recv(torch.ones(3), 0)


REFUSED = [
    (lambda rank: dist.all_reduce(torch.ones(1, dtype=torch.bool), op=dist.ReduceOp.AVG),
     "RankError: .*raised NotSupportedError: .*torch.bool has no average"),
    (lambda rank: dist.all_reduce(torch.eye(2).to_sparse(), op=dist.ReduceOp.MAX),
     "RankError: .*raised NotSupportedError: .*make it dense"),
    (lambda rank: dist.all_gather([torch.empty(3), torch.empty(3)], torch.empty(2)),
     r"RankError: .*raised NotSupportedError: .*the one for rank 0 is \(3,\)"),
    (lambda rank: dist.isend(torch.ones(1), group_dst=2), "RankError: .*raised ValueError: .*rank"),
    (lambda rank: dist.irecv(torch.zeros(1), rank).wait(), "RankError: .*has only one side yet"),
    (exchange_of_parts,
     "RankError: .*raised MismatchError: .*rank 0 sends 2 elements to rank 1, which expects 1"),
    (lambda rank: dist.recv(torch.ones(3), 0, tag=7) if rank == 1 else None,
     r"DeadlockError: .*rank 1: waits since 0 ps for message #0 from rank 0 to rank 1 "
     r"\(tag 7, 3 × float32\): step 0, Recv\(peer=0"),
    (message_of_another_size,
     r"DeadlockError: .*#0 from rank 0 to rank 1 \(tag 0, 4 × float32\).*#0 from .* \(tag 0, 3 × float32\)"),
]  # fmt: skip


@pytest.mark.parametrize(("work", "said"), REFUSED)
def test_a_call_that_cannot_be_carried_out_ends_the_run_and_is_named(work, said):
    with pytest.raises((RankError, DeadlockError)) as raised:
        on_ranks(2, work)

    assert re.match(said, f"{raised.type.__name__}: {raised.value}", re.DOTALL)


def test_a_group_can_be_split():
    def work(rank):
        whole = dist.new_group([1, 2, 3])
        if rank == 0:
            return None
        part = dist.split_group(whole, [[2, 1]], group_desc="a part")
        if part is None:
            return "apart"
        tensor = torch.tensor([10.0**rank])
        dist.all_reduce(tensor, group=part)
        return tensor.item(), dist.get_process_group_ranks(part)

    assert on_ranks(4, work).results == [None, "apart", (1100.0, [2, 3]), (1100.0, [2, 3])]


def test_an_asynchronous_collective_overlaps_with_what_is_charged_meanwhile():
    def work(rank):
        me = Cluster.current()
        handle = dist.all_reduce(torch.ones(1_000_000), async_op=True)
        assert not handle.is_completed()
        me.charge_ps(50_000_000)
        handle.wait()
        assert handle.is_completed()
        return me.now_ps()

    alone = on_ranks(2, lambda rank: dist.all_reduce(torch.ones(1_000_000)))

    assert on_ranks(2, work).times_ps == alone.times_ps


def test_gradients_flow_through_torchs_functional_exchange():
    def work(rank):
        tensor, splits = torch.arange(8.0, requires_grad=True), [2] * 4
        exchanged = functional.all_to_all_single_autograd(tensor, splits, splits, dist.group.WORLD)
        (exchanged.sum() * (rank + 1)).backward()
        return exchanged.tolist(), tensor.grad.tolist()

    for rank, (exchanged, grad) in enumerate(on_ranks(4, work).results):
        assert exchanged == [2.0 * rank, 2.0 * rank + 1] * 4
        assert grad == [1, 1, 2, 2, 3, 3, 4, 4]


def test_an_error_of_a_collective_comes_out_of_the_backward_pass_that_waits_for_it():
    def work(rank):
        weight = torch.ones(3, requires_grad=True)

        def hook(parameter):
            handle = dist.all_reduce(parameter.grad, async_op=True)

            def fail():
                raise OSError("the link is down")

            handle._finish = fail
            handle.get_future()

        weight.register_post_accumulate_grad_hook(hook)
        with pytest.raises(OSError, match="the link is down"):
            weight.sum().backward()

    on_ranks(2, work)


SCENARIOS = (*torch_contract.SCENARIOS, *torch_message_contract.SCENARIOS)


def test_a_group_of_rank_threads_keeps_the_contract():
    on_ranks(4, lambda rank: torch_contract.play(rank, SCENARIOS))


@pytest.mark.distributed
@pytest.mark.timeout(300)
@pytest.mark.parametrize("carrier", ["shm", "gloo"])
def test_a_group_of_processes_keeps_the_contract(pool, carrier):
    pool.run(torch_contract.play_in_process, 4, carrier, SCENARIOS, timeout=200)


STUB = Path(torch.__file__).parent / "_C" / "_distributed_c10d.pyi"


def test_torch_takes_a_work_in_no_other_way_than_those_of_this_file():
    taking = re.findall(r"def (\w+)\((?:[^()]|\([^()]*\))*\bwork: Work\b", STUB.read_text())

    assert taking == ["_set_forward_pass_work_handle", "_register_work"]


@pytest.mark.parametrize("divide_by_initial", [False, True])
def test_a_reducer_waits_for_the_work_of_the_forward_pass(divide_by_initial):
    def work(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        with model.join(divide_by_initial_world_size=divide_by_initial):
            for _ in range(1 + rank):
                model.zero_grad()
                model(torch.full((1, 2), 1.0 + rank)).sum().backward()
                gc.collect()
        return model.module.weight.grad[0, 0].item()

    last = 2.0 / (2 if divide_by_initial else 1)

    assert on_ranks(2, work).results[1] == last


def test_wait_tensor_waits_for_a_work_that_was_registered():
    def work(rank):
        tensor = torch.ones(2)
        torch._C._distributed_c10d._register_work(tensor, dist.all_reduce(tensor, async_op=True))
        gc.collect()
        return functional.wait_tensor(tensor).tolist()

    assert on_ranks(2, work).results == [[2.0, 2.0]] * 2


def test_a_work_in_a_box_can_be_waited_for():
    def work(rank):
        tensor = torch.ones(2)
        box = dist.all_reduce(tensor, async_op=True).boxed()
        gc.collect()
        torch._C._distributed_c10d.Work.unbox(box).wait()
        return tensor.tolist()

    assert on_ranks(2, work).results == [[2.0, 2.0]] * 2


@pytest.mark.parametrize(
    "gather",
    [
        lambda tensor, group, out: torch.ops._c10d_functional.all_gather_into_tensor(tensor, 2, group),
        lambda tensor, group, out: torch.ops._c10d_functional.all_gather_into_tensor_out(
            tensor, 2, group, out=out
        ),
    ],
    ids=["new tensor", "given tensor"],
)
def test_an_operator_keeps_what_a_group_returns(gather):
    def work(rank):
        result = gather(torch.full((2,), float(rank)), dist.group.WORLD.group_name, torch.empty(4))
        gc.collect()
        return torch.ops._c10d_functional.wait_tensor(result).tolist()

    assert on_ranks(2, work).results == [[0.0, 0.0, 1.0, 1.0]] * 2


@given(
    st.sampled_from([torch.int8, torch.uint8, torch.int32, torch.int64]),
    st.lists(st.integers(0, 60), min_size=2, max_size=5),
    st.booleans(),
)
def test_nccl_cuts_off_what_averages_of_integers_have_behind_the_point(dtype, numbers, is_negative):
    sign = -1 if is_negative and dtype.is_signed else 1

    def work(rank):
        dist.init_process_group("nccl")
        tensor = torch.full((2,), sign * numbers[rank], dtype=dtype, device="cuda")
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        return tensor.tolist()

    exact = sum(numbers) * sign
    wrapped = torch.tensor(exact).to(dtype).item()  # as a sum of that many bits is

    assert run(work, ranks=len(numbers), network="ethernet-25g").results == [
        [int(wrapped / len(numbers))] * 2
    ] * len(numbers)


@pytest.mark.parametrize(
    ("sizes", "is_taken"),
    [
        ([1, 2], True), ((1, 2), True), (np.array([1, 2]), True), ([np.int64(1), torch.tensor(2)], True),
        ({1, 2}, True), (iter([1, 2]), False), (torch.tensor([1, 2]), False), ([1.0, 2.0], False),
        ({1: 0, 2: 0}, False), ("12", False),
    ],
)  # fmt: skip
def test_sizes_of_parts_are_what_torch_takes_for_them(sizes, is_taken):
    """As torch over Gloo takes them, of which each was asked."""
    expected = contextlib.nullcontext() if is_taken else pytest.raises(TypeError)

    with expected:
        assert sizes_of(sizes) == [1, 2]
