"""Creation of a process group of ours, for ``init_process_group("testbed")`` and ``new_group``.

Which algorithms it uses is said by ``pg_options``; else, between processes, by the environment variable
``TESTBED_ALGORITHM``, and on rank threads by the run.  Messages of processes go through memory where they can
share some, else over Gloo; ``TESTBED_TRANSPORT`` says which, ``shm`` or ``gloo``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.distributed as dist

from collectives.catalogue.selectors import Choice
from collectives.communicators.connection import SHM, algorithm_of_environment
from collectives.errors import NotSupportedError
from collectives.torch_backend.functional import implement_out_variants
from collectives.torch_backend.group import TestbedProcessGroup
from collectives.torch_backend.members import GLOO, GroupMembers, Processes
from collectives.torch_backend.nccl_options import NCCLOptions, is_of_nccl
from collectives.torch_backend.replacements import replace_for_good

TRANSPORT_VARIABLE = "TESTBED_TRANSPORT"

# Members of the group that this thread makes, or None where it is no rank of theirs: see `members_from`.
MembersOf = Callable[[Any, Choice | None], GroupMembers | None]
_sources: list[MembersOf] = []


@dataclass(frozen=True)
class TestbedOptions:
    """What ``init_process_group("testbed", pg_options=…)`` takes.

    Attributes:
        algorithm: of all-reduce, as `collectives.resolve_algorithm` takes it, or a mapping from
            collectives to their algorithms.
        nccl: ``ProcessGroupNCCL.Options`` for the group of NCCL's that moves CUDA tensors between processes.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class of this name for tests

    algorithm: Choice = "ring"
    nccl: Any = None


@contextmanager
def members_from(source: MembersOf) -> Iterator[None]:
    """Let groups be made of other members than processes while the body runs.

    Args:
        source: given torch's options and the group's own algorithm, it returns the members, or None
            in threads that are no ranks of its own.
    """
    _sources.append(source)
    try:
        yield
    finally:
        _sources.remove(source)


def create(options: Any, backend_options: Any) -> TestbedProcessGroup:
    """Create the process group that ``init_process_group`` or ``new_group`` asks for.

    Called by torch; *options* say who takes part, *backend_options* are the user's: `TestbedOptions`, or
    NCCL's.

    Raises:
        NotSupportedError: this is a child that was forked from the process of a rank.
        TypeError: they are others.
    """
    world = dist.group.WORLD
    if isinstance(world, TestbedProcessGroup):
        world.home.check()
    implement_out_variants()
    chosen, nccl = None, backend_options
    if isinstance(backend_options, TestbedOptions):
        chosen, nccl = backend_options.algorithm, backend_options.nccl
    for source in reversed(_sources):
        members = source(options, chosen)
        if members is not None:
            break
    else:
        if nccl is not None and not is_of_nccl(nccl):
            kind = type(nccl).__name__
            raise TypeError(f"pg_options must be a TestbedOptions or ProcessGroupNCCL.Options, got {kind}")
        replace_for_good(lambda group: isinstance(group, TestbedProcessGroup))
        algorithm = chosen or algorithm_of_environment()
        members = Processes(options, algorithm, nccl, transport=_transport_of_environment())
    group = TestbedProcessGroup(members, options.group_rank, options.group_size)
    group.options = NCCLOptions() if nccl is None else nccl
    return group


def _transport_of_environment() -> str | None:
    name = os.environ.get(TRANSPORT_VARIABLE) or None
    if name not in (None, GLOO, SHM):
        raise NotSupportedError(
            f"environment variable {TRANSPORT_VARIABLE}: there is no transport {name!r}; "
            f"expected {GLOO} or {SHM}"
        )
    return name
