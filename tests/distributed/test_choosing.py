"""Choice of what carries calls of processes: by a table, by the environment, or by a name."""

import json
import os
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from collectives import NotSupportedError, UnknownAlgorithmError, connect
from collectives.communicators.auto import AutoLauncher
from collectives.communicators.connection import ALGORITHM_VARIABLE
from collectives.torch_backend import TestbedOptions
from tests.collectives.communicators import tensor_contract
from tests.collectives.transports.transport_contract import SCENARIOS, play

pytestmark = pytest.mark.distributed

SMALL, LARGE = 1024, 65536


def write_table(path, ranks, transport="gloo"):
    fastest = {SMALL: "native", LARGE: "ring"}
    rows = [
        {"collective": collective, "algorithm": name, "size_bytes": size, "time_us": 1.0 + (name != best)}
        for collective in ("all_reduce", "all_gather")
        for size, best in fastest.items()
        for name in ("native", "ring")
    ]
    path.write_text(json.dumps({"ranks": ranks, "transport": transport, "rows": rows}))
    return f"auto:table={path}"


def both_sizes_in_flight(rank, world_size, choice):
    communicator = connect(algorithm=choice, timeout=20)
    assert isinstance(communicator.launcher, AutoLauncher)
    tensors = [torch.full((size // 4,), float(rank)) for size in (SMALL, LARGE, SMALL, LARGE)]
    works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works if rank % 2 else reversed(works):
        work.wait()
    assert all(torch.equal(t, torch.full_like(t, float(sum(range(world_size))))) for t in tensors)
    return [getattr(work, "work", work).call.algorithm for work in works]


@pytest.mark.costly
def test_every_size_goes_to_what_was_fastest_and_waits_in_any_order(pool, tmp_path):
    choice = write_table(tmp_path / "table.json", ranks=3)

    for result in pool.run(both_sizes_in_flight, 3, choice):
        assert result == ["native", "ring"] * 2


def chosen_by_default(rank, world_size, names):
    """Return carrier and launcher of what nobody has chosen but, in turn, the environment."""
    found = []
    for name in names:
        with mock.patch.dict(os.environ, {ALGORITHM_VARIABLE: name}):
            communicator = connect(timeout=20)
            named = connect(algorithm="native", timeout=20)
        total = torch.ones(LARGE // 4)
        communicator.all_reduce(total)
        assert total[0] == world_size
        assert named.carrier == "native", "the environment overruled the program"
        found.append((communicator.carrier, type(communicator.launcher).__name__))
    return found


def test_the_environment_makes_a_measured_table_the_default(pool, tmp_path):
    table = write_table(tmp_path / "table.json", ranks=2)

    for measured, nothing in pool.run(chosen_by_default, 2, [table, ""]):
        assert measured == ("gloo", "AutoLauncher")
        assert nothing == ("shm", "ProgramLauncher")


def wait_for_the_vendor_first(rank, world_size, choice):
    communicator = connect(algorithm=choice, timeout=10)
    large, small = torch.ones(LARGE // 4), torch.ones(SMALL // 4)
    if rank == 0:
        first = communicator.all_reduce(large, async_op=True)
        communicator.all_reduce(small, async_op=True).wait()
        first.wait()
    else:
        communicator.all_reduce(large)
        communicator.all_reduce(small)
    return large[0].item() + small[0].item()


def test_a_wait_for_the_vendor_lets_our_programs_before_it_go_on(pool, tmp_path):
    choice = write_table(tmp_path / "table.json", ranks=3)

    assert pool.run(wait_for_the_vendor_first, 3, choice) == [6.0] * 3


def keep_the_contract(rank, world_size, choice):
    communicator = connect(algorithm=choice, timeout=30)
    return play(communicator, [*SCENARIOS, *tensor_contract.SCENARIOS])


@pytest.mark.costly
def test_it_keeps_the_contract_of_a_communicator(pool, tmp_path):
    pool.run(keep_the_contract, 3, write_table(tmp_path / "table.json", ranks=3))


def refusal(rank, world_size, choice):
    try:
        connect(algorithm=choice)
    except NotSupportedError as error:
        return str(error)
    return "not refused"


def test_without_a_table_or_with_that_of_another_group_auto_is_refused(pool, tmp_path):
    of_three, over_nccl = write_table(tmp_path / "a.json", 3), write_table(tmp_path / "b.json", 2, "nccl")

    for choice, said in (
        ("auto", "testbed bench --transport gloo --ranks 2 --algorithm all --output FILE"),
        (of_three, "measured with 3 ranks"),
        (over_nccl, "measured over nccl"),
    ):
        assert said in pool.run(refusal, 2, choice)[0]


def taken_by(group, world_size):
    """Return the transport and the algorithm of an all-reduce on *group*."""
    tensor = torch.ones(8)
    dist.all_reduce(tensor, group=group)
    assert tensor[0] == world_size
    launcher = group.communicator(tensor.device).launcher
    return type(launcher.transport).__name__, str(launcher.selector.select("all_reduce", 32))


def chosen_by(rank, world_size, variable, names, options):
    """Return transport and algorithm of groups of each of these *options*, or what refuses the name."""
    used = []
    for name in names:
        try:
            with mock.patch.dict(os.environ, {variable: name}):
                groups = [dist.new_group(backend="testbed", pg_options=own) for own in options]
                used += [taken_by(group, world_size) for group in groups]
        except (NotSupportedError, UnknownAlgorithmError) as error:
            used.append(str(error))
    return used


def test_the_environment_chooses_the_transport_between_processes(pool):
    names = ("shm", "gloo", "", "smh")

    *used, error = pool.run(chosen_by, 2, "TESTBED_TRANSPORT", names, (None,))[0]

    memory, gloo = ("SharedMemoryTransport", "ring"), ("GlooTransport", "ring")
    assert used == [memory, gloo, memory]
    assert (
        error == "environment variable TESTBED_TRANSPORT: there is no transport 'smh'; expected gloo or shm"
    )


def test_the_environment_chooses_the_algorithm_of_groups_that_choose_none(pool):
    options = (None, TestbedOptions("naive"))

    *used, error = pool.run(chosen_by, 2, "TESTBED_ALGORITHM", ("tree", "", "rign"), options)[0]

    assert [algorithm for _, algorithm in used] == ["tree", "naive", "ring", "naive"]
    assert error.startswith("environment variable TESTBED_ALGORITHM: ")
    assert "ring" in error
