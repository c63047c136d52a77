"""How ``init_process_group("testbed")`` and ``new_group`` come by a process group of ours.

Which algorithms it uses is said by ``pg_options``; else, between processes, by the environment variable
``TESTBED_ALGORITHM``, and on rank threads by the run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from collectives.autoload import register
from collectives.choice import Choice, check_choice
from collectives.errors import UnknownAlgorithmError
from collectives.torch_backend.group import TestbedProcessGroup
from collectives.torch_backend.members import Members, Processes
from collectives.torch_backend.replacements import replace_for_good
from sim.cluster import Cluster

ALGORITHM_VARIABLE = "TESTBED_ALGORITHM"

register()  # for those who import this module where the package is not installed


@dataclass(frozen=True)
class TestbedOptions:
    """What ``init_process_group("testbed", pg_options=…)`` takes.

    Attributes:
        algorithm: of all-reduce, as `collectives.resolve_algorithm` takes it, or a mapping from
            collectives to their algorithms.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class of this name for tests

    algorithm: Choice = "ring"


def create(options: Any, backend_options: Any) -> TestbedProcessGroup:
    """Create the process group that ``init_process_group`` or ``new_group`` asks for.

    Called by torch; *options* say who takes part, *backend_options* are the user's `TestbedOptions`.
    """
    rank_thread = Cluster.current()
    if isinstance(backend_options, TestbedOptions):
        algorithm = backend_options.algorithm
    elif backend_options is None or rank_thread is not None:
        algorithm = None  # on rank threads the script may have asked for any backend, with its options
    else:
        raise TypeError(f"pg_options must be a TestbedOptions, got {type(backend_options).__name__}")
    members: Members
    if rank_thread is None:
        replace_for_good(lambda group: isinstance(group, TestbedProcessGroup))
        members = Processes(options, algorithm or _algorithm_of_environment())
    else:
        from collectives.virtual.group import RankThreads

        members = RankThreads(rank_thread, options, algorithm)
    return TestbedProcessGroup(members, options.group_rank, options.group_size)


def _algorithm_of_environment() -> str:
    name = os.environ.get(ALGORITHM_VARIABLE) or "ring"
    try:
        check_choice(name)
    except UnknownAlgorithmError as error:
        raise UnknownAlgorithmError(f"environment variable {ALGORITHM_VARIABLE}: {error}") from None
    return name
