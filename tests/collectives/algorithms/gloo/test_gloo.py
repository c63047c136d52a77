"""Gloo's own programs: what ranks exchange, and what they take on a simulated network."""

import pytest

from collectives import NotSupportedError, Send, simulate
from collectives.algorithms.gloo.all_to_all import gloo_all_to_all
from collectives.catalogue.native import native_program
from collectives.program.chunking import Chunking
from collectives.program.contracts import CONTRACTS
from ddp import load_profile, simulate_step
from tests.collectives.sends import sends
from tests.given import switch

MIB = 1 << 20
SWITCH = switch(4, "1Gbps", "20us")
EXCHANGED = [
    ("all_reduce", MIB, {(0, 3): 1.5, (1, 0): 1.5, (2, 1): 1.5, (3, 2): 1.5}),
    ("all_gather", MIB, {(0, 1): 0.75, (1, 2): 0.75, (2, 3): 0.75, (3, 0): 0.75}),
    ("broadcast", MIB, {(1, 2): 1.0, (1, 3): 1.0, (2, 0): 1.0}),
    ("reduce", MIB, {(0, 1): 0.25, (0, 3): 0.75, (1, 0): 0.75, (2, 1): 1.0, (3, 1): 0.25, (3, 2): 0.75}),
    ("reduce", 16 * MIB,
     {(0, 1): 0.25, (0, 3): 0.875, (1, 0): 0.875, (2, 1): 1.125, (3, 1): 0.25, (3, 2): 0.875}),
    ("reduce_scatter", MIB, {(0, 3): 1.5, (1, 0): 1.5, (2, 1): 1.5, (3, 2): 1.5}),
]  # fmt: skip
"""Parts of a buffer that went from rank to rank under torch 2.13, 4 ranks, root 1: ``ss -ti``."""


def exchanged(algorithm, world_size, nbytes):
    chunking = Chunking.of(algorithm, world_size, nbytes, 1)
    sent = {}
    for rank, _, send in sends(algorithm, world_size):
        pair = rank, send.peer
        sent[pair] = sent.get(pair, 0) + chunking.nbytes(send.chunk, send.num_chunks)
    return {pair: moved / nbytes for pair, moved in sorted(sent.items())}


@pytest.mark.parametrize(("collective", "nbytes", "parts"), EXCHANGED)
def test_each_pair_of_ranks_exchanges_what_it_does_under_torch(collective, nbytes, parts):
    native = native_program(collective, 4, nbytes, 4)
    if "root" in native.parameter_names():
        native = native.with_parameters(root=1)

    assert exchanged(native, 4, nbytes) == parts


@pytest.mark.parametrize("world_size", [2, 4, 5, 8])
def test_messages_wait_half_the_ranks_up_and_every_second_one_above(world_size):
    waiting = {
        (rank, operation.peer)
        for rank in range(world_size)
        for operation in list(gloo_all_to_all.steps(rank, world_size))[-1]
        if isinstance(operation, Send) and operation.chunk >= world_size
    }

    assert waiting == {
        (low, high)
        for high in range(world_size)
        for low in range(high)
        if 2 * (high - low) == world_size or (2 * (high - low) > world_size and (high - low) % 2 == 0)
    }


@pytest.mark.parametrize("collective", CONTRACTS)
def test_native_over_gloo_is_the_program_that_gloo_runs(collective):
    asked = {"nbytes": 16 * MIB, "topology": SWITCH, "collective": collective, "itemsize": 4}
    program = native_program(collective, 4, 16 * MIB, 4)

    run = simulate("native", transport_model="gloo", **asked)

    assert run.time_ps == simulate(program, transport_model="gloo", **asked).time_ps
    assert run.algorithm.startswith(program.name)


@pytest.mark.parametrize(
    ("collective", "nbytes", "time_ps"),
    [
        # Of four messages of a rank each waits for the one before, where three would do.
        ("all_to_all", 1_000_000, 4 * 2 * 10**9 + 2 * 40 * 10**6),
        # 2 S / B until ranks 1 and 2 have the buffer, S / B until rank 3 has it from rank 1; two latencies.
        ("broadcast", 125_000, 3 * 10**9 + 2 * 40 * 10**6),
    ],
)
def test_native_over_gloo_takes_the_time_of_its_closed_form(collective, nbytes, time_ps):
    run = simulate("native", nbytes=nbytes, topology=SWITCH, collective=collective, transport_model="gloo")

    assert run.time_ps == time_ps


def test_a_training_step_runs_native_over_gloo_and_nowhere_else():
    profile = load_profile("resnet50")

    step = simulate_step(profile, topology=SWITCH, algorithm="native", transport_model="gloo")

    assert step.time_ps > step.compute_ps
    for model in ("ideal", "nccl"):
        with pytest.raises(NotSupportedError, match=f"native: .* transport_model='gloo', not for '{model}'"):
            simulate("native", nbytes=MIB, topology=SWITCH, transport_model=model)
