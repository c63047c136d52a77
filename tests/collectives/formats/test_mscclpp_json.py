"""MSCCL++ plans, executed by an interpreter of one-sided writes."""

import json
from typing import Any

import pytest

from collectives import NotSupportedError, Recv, RecvReduce, Send, algorithm, resolve_algorithm
from collectives.algorithms import ALGORITHMS
from collectives.formats.mscclpp_json import to_mscclpp_json
from tests.collectives.formats.msccl_runtime import StuckError, why_not
from tests.collectives.formats.mscclpp_runtime import fulfils

SHIPPED = [pytest.param(shipped, id=f"{shipped.collective}-{shipped.name}") for shipped in ALGORITHMS]


def is_caught(plan: dict[str, Any]) -> bool:
    try:
        return not all(fulfils(plan, seed) for seed in range(20))
    except (AssertionError, StuckError):
        return True


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_the_interpreter_of_these_tests_catches_every_missing_signal_wait_and_nop(name):
    plan = to_mscclpp_json(resolve_algorithm(name), 3)
    ops = plan["gpus"][1]["threadblocks"][0]["ops"]

    for position, op in enumerate(list(ops)):
        del ops[position]
        assert is_caught(plan), (position, op)
        ops.insert(position, op)

    assert not is_caught(plan)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("shipped", SHIPPED)
def test_a_plan_does_what_the_program_does_by_one_sided_writes(shipped, world_size):
    reason = why_not(shipped, world_size)
    if reason is not None:
        with pytest.raises(NotSupportedError, match=reason):
            to_mscclpp_json(shipped, world_size)
        return

    plan = json.loads(json.dumps(to_mscclpp_json(shipped, world_size)))

    assert all(fulfils(plan, seed) for seed in range(4))


def test_a_rank_that_serves_a_later_step_of_a_peer_first_does_not_deadlock():
    @algorithm(num_chunks=3, collective="all_gather")
    def relay(rank: int, world_size: int) -> Any:
        if rank == 0:
            yield Send(1, 0), Send(2, 0), Recv(1, 1), Recv(2, 2)
        elif rank == 1:
            yield (Recv(0, 0),)
            yield Send(0, 1), Send(2, 1)
            yield (Recv(2, 2),)
        else:
            yield (Recv(1, 1),)
            yield Recv(0, 0), Send(0, 2)
            yield (Send(1, 2),)

    plan = to_mscclpp_json(relay, 3)

    assert all(fulfils(plan, seed) for seed in range(10))


@pytest.mark.parametrize(
    ("name", "world_size"), [("ring", 16), ("direct", 12)], ids=["operations", "channels"]
)
def test_a_plan_with_more_than_a_thread_block_takes_goes_on_in_the_next(name, world_size):
    plan = to_mscclpp_json(resolve_algorithm(name), world_size)

    blocks = plan["gpus"][0]["threadblocks"]
    assert len(blocks) > 1
    assert len(plan["gpus"][0]["semaphores"]) == len(blocks) - 1
    assert fulfils(plan, 0)


def test_a_plan_that_no_thread_blocks_could_hold_is_refused_with_the_limit():
    reason = (
        "thread blocks of at most 64 operations and 16 channels each; the 16 semaphores of MSCCL.. keep 17"
    )
    with pytest.raises(NotSupportedError, match=reason):
        to_mscclpp_json(resolve_algorithm("chain:segments=200"), 3)


def test_a_plan_has_the_fields_that_the_executor_reads_besides_those_of_the_interpreter():
    @algorithm(num_chunks=1)
    def exchange(rank: int, world_size: int) -> Any:
        yield Send(1 - rank, 0), RecvReduce(1 - rank, 0)

    plan = to_mscclpp_json(exchange, 2, reduction="max")

    gpu = plan["gpus"][1]
    (block,) = gpu["threadblocks"]
    assert (plan["name"], plan["protocol"], plan["inplace"]) == ("exchange", "Simple", True)
    assert gpu["channels"] == [{"channel_type": "memory", "connected_to": [0, 0]}]
    assert gpu["remote_buffers"] == [{"rank": 0, "type": "s", "access_channel_types": ["memory"]}]
    assert [op["name"] for op in block["ops"]] == [
        "copy", "nop", "signal", "wait", "nop", "put", "nop", "signal", "wait", "nop", "re",
    ]  # fmt: skip
    assert block["ops"][-1]["reduce_op"] == "max"


def test_a_reduction_that_mscclpp_has_not_is_refused():
    with pytest.raises(ValueError, match="reduction must be one of sum, min, max, got 'product'"):
        to_mscclpp_json(resolve_algorithm("ring"), 2, reduction="product")
