"""The backend between processes: what the environment chooses."""

import os

import pytest
import torch
import torch.distributed as dist

from collectives import NotSupportedError, UnknownAlgorithmError
from collectives.torch_backend import TestbedOptions

pytestmark = pytest.mark.distributed


def chosen_by(rank, world_size, variable, names, options):
    """Return transport and algorithm of groups of each of these *options*, or what refuses the name."""
    used = []
    for name in names:
        os.environ[variable] = name
        try:
            for own in options:
                group = dist.new_group(backend="testbed", pg_options=own)
                tensor = torch.ones(8)
                dist.all_reduce(tensor, group=group)
                assert tensor[0] == world_size
                launcher = group.communicator(tensor.device).launcher
                algorithm = str(launcher.selector.select("all_reduce", 32))
                used.append((type(launcher.transport).__name__, algorithm))
        except (NotSupportedError, UnknownAlgorithmError) as error:
            used.append(str(error))
        finally:
            del os.environ[variable]
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
