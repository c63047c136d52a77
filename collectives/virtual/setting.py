"""Setting of a run in virtual time: all that was asked for, and how one attempt is carried out in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from collectives.catalogue.selectors import Choice
from collectives.errors import NotSupportedError
from collectives.timing.assumptions import Model, Software
from collectives.timing.thread_blocks import left_out_of_a_run
from collectives.virtual.computation import ComputeModel, Roofline
from collectives.virtual.computation.compiled import regions_of_torch
from collectives.virtual.computation.ddp_shapes import parameters_compared
from collectives.virtual.computation.passes import passes_followed
from collectives.virtual.diagnosis.checks import mistakes_noticed
from collectives.virtual.diagnosis.standstill import standstill_named
from collectives.virtual.diagnosis.verdict import Diagnosis
from collectives.virtual.faults import Faults, VirtualCondition
from collectives.virtual.folding.attempts import Attempt
from collectives.virtual.gpu.data_dependent import branches_of_torch, unknown_integers_named
from collectives.virtual.gpu.results import plain_results
from collectives.virtual.gpu.routing import Router, Routing
from collectives.virtual.gpu.virtual_cuda import VirtualCuda
from collectives.virtual.group_calls.calls import GroupCalls
from collectives.virtual.group_calls.exchange import Exchanges
from collectives.virtual.isolation.isolation import Isolation
from collectives.virtual.isolation.own_threads import own_threads
from collectives.virtual.iterations import Iterations
from collectives.virtual.library_calls import LibraryCalls
from collectives.virtual.memory.held_storage import is_out_of_memory
from collectives.virtual.memory.memories import Memories, MemoryLimit
from collectives.virtual.notices import Notices
from collectives.virtual.report import VirtualReport
from collectives.virtual.script_clock import ScriptClock, clock_of_script
from collectives.virtual.streams.cpu_streams import streams_of_torch
from collectives.virtual.streams.gpus import Gpus, gpu_of
from collectives.virtual.task import FunctionOrScript, Globals, Task, graphs_dropped_after
from collectives.virtual.world import VirtualWorld
from sim.cluster import Cluster, Order, RankThread
from sim.errors import RankError, SimulationError
from sim.topology import Topology
from sim.trace import Trace
from sim.units import SECOND

if TYPE_CHECKING:
    from collectives.virtual.diagnosis.races import Races
    from collectives.virtual.parameters.record import ParameterRecord

_c10d_core: Any = torch._C._distributed_c10d


@dataclass(frozen=True)
class VirtualRun:
    """Outcome of a run.

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


@dataclass(frozen=True)
class Setting:
    """All that a run was asked for, as `collectives.virtual.run` has it, read and checked."""

    fn_or_script: FunctionOrScript
    argv: Sequence[str]
    own: Sequence[str]
    topology: Topology
    model: ComputeModel
    algorithm: Choice
    model_of_time: Model
    software: Software
    conditions: Sequence[VirtualCondition]
    faults: Faults
    memory_limit: MemoryLimit
    fake: bool
    strict: bool
    router: Router | None
    clock: ScriptClock
    stands_still: bool
    trace: Trace | None
    watch: Callable[[int, int], None] | None
    looks_for_shared_state: bool
    order: Order | None = None
    parameters: ParameterRecord | None = None
    lenient: bool = False
    races: Races | None = None
    slowest: Fraction = Fraction(1)

    def carry_out(self, attempt: Attempt) -> VirtualRun:
        """Run all ranks, as far as *attempt* folds them.

        Raises:
            RankError, DeadlockError, LinkFailedError: see `collectives.virtual.run`.
        """
        topology, model, trace = self.topology, self.model, self.trace
        transport, rank_overhead = self.software.transport, self.software.rank_overhead()
        is_gpu, is_roofline = gpu_of(model) is not None, isinstance(model, Roofline)
        if self.fake and not is_gpu:
            raise NotSupportedError(
                f"a run without data needs a GPU as its model of computation, such as h100; got {model.name}"
            )
        devices = VirtualCuda(model, not self.fake, self.router, self.races)
        threads = tuple(attempt.classes.threads(topology.num_ranks))
        task = Task.of(
            self.fn_or_script, self.argv, threads, devices, self.own, looks=self.looks_for_shared_state
        )
        isolation = Isolation(topology, attempt.streams, threads)

        cluster = Cluster(
            topology,
            contexts=[*isolation.contexts, *task.contexts],
            trace=trace,
            conditions=self.faults.conditions,
            threads=threads,
            order=self.order,
        )
        world = cluster.shared[VirtualWorld] = VirtualWorld(
            self.algorithm,
            trace=trace,
            delay_ps=self.faults.delay_ps,
            store_delay_ps=self.faults.store_delay_ps,
            is_calm=self.faults.are_calm and cluster.network.takes_time,
            transport_model=transport,
            rank_overhead=rank_overhead,
            is_lenient=self.lenient,
            classes=attempt.classes,
            slowest=self.slowest,
            library=LibraryCalls(topology, self.software) if self.model_of_time == "library" else None,
        )
        world.group_calls = GroupCalls(
            cluster.scenario,
            cluster.network,
            world.meeting_points,
            rank_overhead,
            transport,
            self.faults.delay_ps,
            self.faults.are_calm,
        )
        world.group_calls.siblings = lambda hosts, ordinal: world.partitions.of(hosts, ordinal).groups
        exchanges = cluster.shared[Exchanges] = Exchanges(cluster.env, attempt.classes)
        world.classes.on_merge.append(exchanges.representatives_changed)
        iterations = cluster.shared[Iterations] = Iterations(topology.num_ranks)
        if self.watch is not None:
            iterations.on_end(_watched_by(self.watch))
        memories = cluster.shared[Memories] = Memories(self.memory_limit)
        if isinstance(model, Roofline):
            iterations.on_end(model.end_iteration)
            model.launches(cluster).strict = self.strict
        self.faults.prepare(cluster, iterations)
        Diagnosis(cluster).attach()
        attempt.watch(cluster, iterations)

        with (
            standstill_named(cluster),
            isolation.entered(),
            iterations.counted(),
            passes_followed() if is_roofline else nullcontext(),
            task.around,
            devices.there(),
            streams_of_torch() if is_gpu else nullcontext(),
            clock_of_script(self.clock, self.stands_still),
            regions_of_torch(),
            branches_of_torch(),
            parameters_compared() if is_roofline else nullcontext(),
            mistakes_noticed(cluster),
            memories.followed() if is_gpu else nullcontext(),
            self._recorded(iterations),
            nullcontext() if self.races is None else self.races.watching(),
        ):
            try:
                results = cluster.run(lambda rank: self._run_rank(task, rank, devices, attempt))
            except Exception as error:
                for text in task.kept():
                    error.add_note(f"note: {text}")
                if isinstance(error, SimulationError):
                    for variables in task.globals:
                        graphs_dropped_after(error, variables)
                if isinstance(error, RankError) and is_out_of_memory(error):
                    error.report = self._report(cluster, has_ended=True)
                elif isinstance(error, RankError) and (read := Notices.of(cluster).last_read(error.rank)):
                    error.add_note(f"note: {read}")
                raise
            finally:
                cluster.release()

        attempt.note_unmet(cluster)
        report = self._report(cluster)
        results = [results[attempt.classes.representative(rank)] for rank in range(topology.num_ranks)]
        return VirtualRun(results, cluster.times_ps, cluster, report)

    def _run_rank(self, task: Task, rank: int, devices: VirtualCuda, attempt: Attempt) -> Any:
        torch.set_num_threads(1)  # a matter of the thread; torchrun does it by OMP_NUM_THREADS
        rank_thread = Cluster.current()
        assert rank_thread is not None

        try:
            with (
                devices.on_rank(rank_thread),
                attempt.on_rank(self.fn_or_script),
                own_threads(rank_thread),
                unknown_integers_named(Notices.of(rank_thread.cluster)),
            ):
                result = _finished(task.run(rank))
                if self.parameters is not None:
                    self.parameters.end(rank_thread)
                left = plain_results(result)
                return Globals(left, result) if task.globals else left
        finally:
            _c10d_core._unregister_all_process_groups()  # this thread's

    def _recorded(self, iterations: Iterations) -> AbstractContextManager[None]:
        """Record the parameters of models meanwhile, if that is asked for."""
        if self.parameters is None:
            return nullcontext()
        return self.parameters.recorded(lambda rank: iterations.finished[rank])

    def _report(self, cluster: Cluster, has_ended: bool = False) -> VirtualReport:
        """Return what a run has taken, be it that an error *has_ended* it."""
        gpus = Gpus.of(cluster)
        gpus.conclude(cluster)
        Iterations.of(cluster).conclude(gpus)
        if isinstance(self.model, Roofline):
            self.model.note_unmodelled(Notices.of(cluster))
        if text := left_out_of_a_run(self.algorithm):
            Notices.of(cluster).add(text)
        routed = self.router.notices() if isinstance(self.router, Routing) else []
        for text in (*VirtualWorld.of(cluster).group_calls.notices(), *routed):
            Notices.of(cluster).add(text)
        return VirtualReport.of(cluster, self.algorithm, self.model, self.conditions, has_ended)


def _finished(result: Any) -> Any:
    """Return what a function has returned, unless that is itself, of which nothing has run.

    Raises:
        TypeError: it is a coroutine or a generator.
    """
    if inspect.iscoroutine(result) or inspect.isasyncgen(result) or inspect.isgenerator(result):
        kind = "coroutine" if inspect.iscoroutine(result) else "generator"
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody has awaited it
        raise TypeError(
            f"{result.__qualname__} is a {kind}, of which nothing has run; expected a plain function, which "
            "may call asyncio.run"
        )
    return result


def _watched_by(watch: Callable[[int, int], None]) -> Callable[[RankThread, int], None]:
    def listener(rank_thread: RankThread, finished: int) -> None:
        if rank_thread.rank == 0:
            watch(finished, rank_thread.now_ps())

    return listener
