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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from collectives.catalogue.selectors import Choice, check_choice
from collectives.virtual.computation import Charges, ComputeModel
from collectives.virtual.devices.mapping import Devices
from collectives.virtual.diagnosis.sampler_checks import SamplerChecks
from collectives.virtual.diagnosis.verdict import Diagnosis
from collectives.virtual.faults import Fault, Faults
from collectives.virtual.group import VirtualWorld
from collectives.virtual.isolation import per_rank
from collectives.virtual.isolation.forks import only_workers
from collectives.virtual.isolation.patches import process_groups_on_rank_threads
from collectives.virtual.iterations import Iterations
from collectives.virtual.report import VirtualReport
from collectives.virtual.script import Module, Script
from sim.cluster import Cluster, RankContext, RankThread
from sim.errors import TopologyError
from sim.topology import Topology
from sim.topology.description import load_network
from sim.trace import Trace
from sim.units import SECOND

_c10d_core: Any = torch._C._distributed_c10d


@dataclass(frozen=True)
class VirtualRun:
    """What came of a run.

    Attributes:
        results: of each rank, what the function returned, or the globals that the script left.
        times_ps: each rank's local time at its end, in picoseconds.
        cluster: on which it ran; its network knows how many bytes each link has carried.
        report: what was spent on what.
    """

    results: list[Any]
    times_ps: tuple[int, ...]
    cluster: Cluster
    report: VirtualReport

    @property
    def seconds(self) -> float:
        """Virtual seconds until the last rank had finished."""
        return max(self.times_ps) / SECOND


def run(
    fn_or_script: Callable[[int], Any] | Module | str | os.PathLike[str],
    ranks: int | None = None,
    network: Topology | str | os.PathLike[str] = "switch-100g",
    *,
    compute: ComputeModel | Mapping[str, int] | None = None,
    faults: Sequence[Fault] = (),
    algorithm: Choice = "ring",
    argv: Sequence[str] = (),
    trace: Trace | None = None,
) -> VirtualRun:
    """Run ``fn(rank)``, or a script, on so many ranks of a network in virtual time; see `run_virtual`.

    Args:
        fn_or_script: a function of the rank, the path of a script, or a `Module`.
        ranks: how many; None: as many as *network* has, where it says so.
        network: the name of a preset, the path of a network file, or a topology.
        compute: how computation takes time.
        faults: under which the cluster works.
        algorithm: in process groups that do not choose one.
        argv: the script's arguments.
        trace: gets what happened when.

    Raises:
        NetworkFileError: there is no such network.
        TopologyError: it does not have so many ranks, or does not say how many.
    """
    topology = topology_of(network, ranks)
    return run_virtual(
        fn_or_script,
        topology,
        argv=argv,
        compute=compute,
        algorithm=algorithm,
        trace=trace,
        conditions=faults,
    )


def topology_of(network: Topology | str | os.PathLike[str], ranks: int | None) -> Topology:
    """Return *network* with so many ranks.

    Raises:
        NetworkFileError: there is no such network.
        TopologyError: it does not have so many ranks, or does not say how many.
    """
    if not isinstance(network, Topology):
        return load_network(network).topology(ranks)
    if ranks not in (None, network.num_ranks):
        raise TopologyError(f"{network.name}: it has {network.num_ranks} ranks, but {ranks} are asked for")
    return network


def run_virtual(
    fn_or_script: Callable[[int], Any] | Module | str | os.PathLike[str],
    topology: Topology,
    *,
    argv: Sequence[str] = (),
    compute: ComputeModel | Mapping[str, int] | None = None,
    algorithm: Choice = "ring",
    trace: Trace | None = None,
    conditions: Sequence[Fault] = (),
    streams: Callable[[int], per_rank.Streams] | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> VirtualRun:
    """Run ``fn(rank)``, or a script, on every rank of *topology* in virtual time.

    Args:
        fn_or_script: a function of the rank, the path of a script, or a `Module`.
        topology: the network; it has ``num_ranks`` ranks.
        argv: the script's arguments, without its name.
        compute: how computation takes time: a model, or picoseconds per kind of work, such as ``forward`` or
            ``gradient:conv1.weight``; None: it takes none.
        algorithm: in process groups that do not choose one; see `collectives.catalogue.selectors`.
        trace: gets a span for every computation charged and every collective carried out.
        conditions: under which the cluster works (see `sim.scenario`); a straggler's computations take
            longer, too, and jitter is for collectives, not for messages from one rank to another; and its
            faults (see `collectives.virtual.faults`).
        streams: returns the standard output and error of a rank; by default all share the process's.
        watch: called when rank 0 has finished an iteration, with how many it has finished, and its time in
            picoseconds.

    Raises:
        ConditionError: a condition that cannot be on *topology*.
        LinkFailedError: a message was lost with a link; names the messages.
        RankError: a rank raised, or a script ended with another exit code than 0.
        DeadlockError: ranks wait for what no rank will do; found at once, it says what each does, in
            which collective, and which rank has called something else or nothing.
        OSError, ModuleNotFoundError, SyntaxError: the script cannot be read, or is no Python.
    """
    check_choice(algorithm)
    num_ranks = topology.num_ranks
    environment = per_rank.environment(num_ranks, lambda rank: _launched(rank, topology))
    contexts: list[RankContext] = [
        *per_rank.torch_globals(num_ranks), *per_rank.random_generators(num_ranks), environment,
    ]  # fmt: skip
    if streams is not None:
        contexts += per_rank.streams(num_ranks, streams)
    devices = Devices(num_ranks)
    modules: AbstractContextManager[None] = contextlib.nullcontext()
    if callable(fn_or_script):
        devices.read_module_of(fn_or_script)
        fn = fn_or_script
    else:
        named = fn_or_script if isinstance(fn_or_script, Module) else Path(fn_or_script)
        script = Script(named, argv, num_ranks, devices.read)
        devices.read(" ".join(argv))
        contexts += script.contexts()
        modules, fn = script.found(), script.run
    model = compute if isinstance(compute, ComputeModel) else _charges(compute)
    faults = Faults.of(conditions, topology)
    cluster = Cluster(topology, contexts=contexts, trace=trace, conditions=faults.conditions)
    cluster.shared[VirtualWorld] = VirtualWorld(
        algorithm, trace=trace, delay_ps=faults.delay_ps, is_calm=faults.are_calm
    )
    iterations = cluster.shared[Iterations] = Iterations(num_ranks)
    if watch is not None:
        iterations.on_end(_watched_by(watch))
    faults.prepare(cluster, iterations)
    Diagnosis(cluster)
    with contextlib.ExitStack() as stack:
        for changed in (
            _process_restored(), process_groups_on_rank_threads(), iterations.counted(), modules,
            devices.mapped(), SamplerChecks().watching(), only_workers(),
        ):  # fmt: skip
            stack.enter_context(changed)
        try:
            results = cluster.run(lambda rank: _run_rank(fn, rank, model, devices))
        finally:
            per_rank.forget_environment(environment)
    report = VirtualReport.of(cluster, algorithm, model, conditions)
    return VirtualRun(results, cluster.times_ps, cluster, report)


def _watched_by(watch: Callable[[int, int], None]) -> Callable[[RankThread, int], None]:
    def listener(rank_thread: RankThread, finished: int) -> None:
        if rank_thread.rank == 0:
            watch(finished, rank_thread.now_ps())

    return listener


def _charges(compute: Mapping[str, int] | None) -> Charges:
    return Charges(name="none but what the script charges") if compute is None else Charges(compute)


def _run_rank(fn: Callable[[int], Any], rank: int, model: ComputeModel, devices: Devices) -> Any:
    torch.set_num_threads(1)  # a matter of the thread; torchrun does it by OMP_NUM_THREADS
    rank_thread = Cluster.current()
    assert rank_thread is not None
    devices.enter(rank_thread)
    try:
        with model.on_rank(rank_thread):
            return fn(rank)
    finally:
        devices.leave()
        _c10d_core._unregister_all_process_groups()  # this thread's


def _launched(rank: int, topology: Topology) -> dict[str, str]:
    """Return the variables that ``torchrun`` sets for a rank."""
    num_ranks, ranks_per_node = topology.num_ranks, topology.ranks_per_node
    node, local_rank = divmod(rank, ranks_per_node)
    values = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": num_ranks,
        "LOCAL_WORLD_SIZE": min(ranks_per_node, num_ranks - node * ranks_per_node),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-num_ranks // ranks_per_node),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": num_ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
        "OMP_NUM_THREADS": 1,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
    }
    return {name: str(value) for name, value in values.items()}


@contextlib.contextmanager
def _process_restored() -> Iterator[None]:
    """Put back what a script may change for the whole process and no context swaps."""
    cudnn = torch.backends.cudnn
    directory, num_threads = Path.cwd(), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    deterministic = _deterministic()
    flags = {name: getattr(cudnn, name) for name in ("benchmark", "deterministic", "enabled")}
    torch.set_num_threads(1)  # the engine reduces pieces that are too small to share
    try:
        yield
    finally:
        os.chdir(directory)
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision(precision)
        if _deterministic() != deterministic:  # it imports torch's inductor, which takes a second
            torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        for name, value in flags.items():
            setattr(cudnn, name, value)


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
