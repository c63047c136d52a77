"""Run a function or an unmodified script as N ranks in virtual time, in one process.

    run = run_virtual("examples/digits.py", topology, argv=["--epochs", "2"])
    run.seconds

The script finds what ``torchrun`` would have given it: RANK, WORLD_SIZE and their kin in its
environment, a ``__main__`` of its own, fresh random generators, a rendezvous that works.  Whatever
backend it asks for, its process groups are ours (`collectives.torch_backend`) over the simulated
network.  Time passes for a rank when it waits for messages, and when a computation is charged.

Everything that is replaced in torch or in the process for that is put back at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # its defaults capture the group of whoever imports it first

from collectives.autoload import BACKEND
from collectives.choice import Choice, check_choice
from collectives.torch_backend import TestbedProcessGroup
from collectives.virtual import per_rank
from collectives.virtual.group import VirtualStore, VirtualWorld
from collectives.virtual.script import Script
from sim.cluster import Cluster
from sim.conditions import Condition
from sim.errors import DeadlockError
from sim.topology import Topology
from sim.trace import Trace
from sim.units import SECOND

_c10d: Any = torch.distributed.distributed_c10d
_c10d_core: Any = torch._C._distributed_c10d


@dataclass(frozen=True)
class VirtualRun:
    """What came of a run.

    Attributes:
        results: of each rank, what the function returned, or the globals that the script left.
        times_ps: each rank's local time at its end, in picoseconds.
        cluster: on which it ran; its network knows how many bytes each link has carried.
    """

    results: list[Any]
    times_ps: tuple[int, ...]
    cluster: Cluster

    @property
    def seconds(self) -> float:
        """Virtual seconds until the last rank had finished."""
        return max(self.times_ps) / SECOND


def run_virtual(
    fn_or_script: Callable[[int], Any] | str | os.PathLike[str],
    topology: Topology,
    *,
    argv: Sequence[str] = (),
    compute: Mapping[str, int] | None = None,
    algorithm: Choice = "ring",
    trace: Trace | None = None,
    conditions: Sequence[Condition] = (),
) -> VirtualRun:
    """Run ``fn(rank)``, or a script, on every rank of *topology* in virtual time.

    Args:
        fn_or_script: a function of the rank, or the path of a script.
        topology: the network; it has ``num_ranks`` ranks.
        argv: the script's arguments, without its name.
        compute: picoseconds per kind of work, such as ``forward`` or ``gradient:conv1.weight``.
        algorithm: in process groups that do not choose one; see `collectives.choice`.
        trace: gets a span for every computation charged and every collective carried out.
        conditions: under which the cluster works (see `sim.conditions`); a straggler's computations take
            longer, too, and jitter is for collectives, not for messages from one rank to another.

    Raises:
        ConditionError: a condition that cannot be on *topology*.
        LinkFailedError: a message was lost with a link; names the messages.
        RankError: a rank raised, or a script ended with another exit code than 0.
        DeadlockError: ranks wait for what no rank will do; found at once, it says what each does, in
            which collective, and which rank has called something else or nothing.
        OSError: the script cannot be read.
    """
    check_choice(algorithm)
    num_ranks = topology.num_ranks
    environment = per_rank.environment(num_ranks, lambda rank: _launched(rank, topology))
    contexts = [*per_rank.torch_globals(num_ranks), *per_rank.random_generators(num_ranks), environment]
    if callable(fn_or_script):
        fn = fn_or_script
    else:
        script = Script(Path(fn_or_script), argv, num_ranks)
        contexts += script.contexts()
        fn = script.run
    cluster = Cluster(topology, compute=compute, contexts=contexts, trace=trace, conditions=conditions)
    world = cluster.shared[VirtualWorld] = VirtualWorld(algorithm, trace=trace)
    with _process_restored(), _process_groups_on_rank_threads():
        try:
            results = cluster.run(lambda rank: _run_rank(fn, rank))
        except DeadlockError as error:
            raise DeadlockError("\n  ".join([str(error), *world.verdicts()])) from None
        finally:
            per_rank.forget_environment(environment)
    return VirtualRun(results, cluster.times_ps, cluster)


def _run_rank(fn: Callable[[int], Any], rank: int) -> Any:
    torch.set_num_threads(1)  # a matter of the thread; torchrun does it by OMP_NUM_THREADS
    try:
        return fn(rank)
    finally:
        _c10d_core._unregister_all_process_groups()  # this thread's


def _launched(rank: int, topology: Topology) -> dict[str, str]:
    """Return the variables that ``torchrun`` sets for a rank."""
    local_world_size = min(topology.ranks_per_node, topology.num_ranks)
    node, local_rank = divmod(rank, topology.ranks_per_node)
    values = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": topology.num_ranks,
        "LOCAL_WORLD_SIZE": local_world_size,
        "GROUP_RANK": node,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
        "OMP_NUM_THREADS": 1,
    }
    return {name: str(value) for name, value in values.items()}


@contextlib.contextmanager
def _process_restored() -> Iterator[None]:
    """Put back what a script may change for the whole process and no context swaps."""
    directory, num_threads = Path.cwd(), torch.get_num_threads()
    try:
        yield
    finally:
        os.chdir(directory)
        torch.set_num_threads(num_threads)


@contextlib.contextmanager
def _process_groups_on_rank_threads() -> Iterator[None]:
    """Let rank threads meet in a `VirtualStore` and make process groups of their own."""
    replaced = ("rendezvous", "_new_process_group_helper", "default_pg_nccl_timeout")
    before = {name: getattr(_c10d, name) for name in replaced}
    rendezvous, new_group = before["rendezvous"], before["_new_process_group_helper"]

    def meet(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Any]:
        rank_thread = Cluster.current()
        if rank_thread is None:
            yield from rendezvous(url, rank, world_size, **options)
        else:
            num_ranks = rank_thread.cluster.topology.num_ranks
            store = VirtualStore(rank_thread)
            yield store, rank_thread.rank if rank < 0 else rank, num_ranks if world_size < 0 else world_size

    def make(size: int, rank: int, ranks: list[int], backend: Any, *rest: Any, **options: Any) -> Any:
        if Cluster.current() is None:
            return new_group(size, rank, ranks, backend, *rest, **options)
        group, store = new_group(size, rank, ranks, dist.Backend(BACKEND), *rest, **options)
        if isinstance(group, TestbedProcessGroup):  # the name that the script asked for
            _c10d._world.pg_map[group] = (str(backend), store)
        return group, store

    _c10d.rendezvous, _c10d._new_process_group_helper = meet, make
    _c10d.default_pg_nccl_timeout = _c10d.default_pg_timeout  # unset where torch has no NCCL
    _c10d_core._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        _c10d_core._set_thread_isolation_mode(False)
        for name, value in before.items():
            setattr(_c10d, name, value)
