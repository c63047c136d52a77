"""Trial: a draw, carried out; how it ended, and what it left."""

from __future__ import annotations

import ctypes
import gc
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import ReferenceType, WeakKeyDictionary, ref

from testbed.fuzz.defaults import ddp_defaults
from testbed.fuzz.draw import Draw, Space
from testbed.fuzz.faults import Calm
from testbed.fuzz.values import digest, tensors_of, without_times

if TYPE_CHECKING:
    from collectives.virtual import VirtualRun
    from collectives.virtual.faults import VirtualCondition
    from collectives.virtual.parameters.record import ParameterRecord
    from sim.cluster import Cluster
    from sim.topology import Topology

PATIENCE_SECONDS = 120.0
"""Seconds of real time after which a run is taken to hang; a virtual run finds a deadlock at once."""


class OutOfPatience(BaseException):
    """Raised in a run that takes longer than it may; no `Exception`, so that no script swallows it."""


@dataclass(frozen=True)
class Trial:
    """How a run ended, and what it left.

    Attributes:
        error: class of what ended the run; empty if it came to its end.
        message: of that error.
        cause: class of what a rank raised, if one did.
        rank: that raised; None if none did.
        output: of each rank, the lines that it printed, without times.
        values: of each rank, the digest of the parameters it trained and the tensors it left; empty of one
            that was killed.
        time_ps: virtual time until the last rank had finished, in picoseconds.
        utilisation: of the fullest link, over the whole run.
        iterations: that rank 0 finished.
        leftover: what the run has left behind, in words.
    """

    error: str = ""
    message: str = ""
    cause: str = ""
    rank: int | None = None
    output: tuple[tuple[str, ...], ...] = ()
    values: tuple[str, ...] = ()
    time_ps: int = 0
    utilisation: float = 0.0
    iterations: int = 0
    leftover: tuple[str, ...] = ()

    @property
    def is_refusal(self) -> bool:
        """Whether the script itself has declined to run, by ``sys.exit``."""
        return self.cause == "SystemExit"


def topology_of(draw: Draw) -> Topology:
    """Return the network of *draw*, with its ranks."""
    from sim import load_network

    return load_network(draw.network).topology(draw.ranks)


def carry_out(draw: Draw, space: Space, calm: Calm | None = None) -> Trial:
    """Return how the run of *draw* ends; *calm*: what the run without its faults takes."""
    conditions = () if calm is None else draw.conditions(calm)
    return _trial(draw, space, conditions)


def _trial(draw: Draw, space: Space, conditions: Sequence[VirtualCondition]) -> Trial:
    from collectives.virtual import Module, run
    from collectives.virtual.parameters.record import ParameterRecord
    from sim.cluster import RandomOrder
    from sim.errors import RankError, SimulationError
    from testbed.options.arguments import parse_compute_model

    heard = [io.StringIO() for _ in range(draw.ranks)]
    silence = io.StringIO()
    threads_before = set(threading.enumerate())
    parameters = ParameterRecord()
    try:
        with _patience(PATIENCE_SECONDS), ddp_defaults(draw):
            outcome = run(
                Module(space.script) if space.is_module else space.script,
                network=topology_of(draw),
                argv=space.argv,
                compute=parse_compute_model(draw.compute),
                algorithm=draw.algorithm,
                transport_model=draw.transport_model,
                conditions=conditions,
                order=None if draw.order is None else RandomOrder(draw.order, draw.at_any_speed),
                parameters=parameters,
                looks_for_shared_state=False,
                streams=lambda rank: (heard[rank], silence),
            )
    except RankError as error:
        cause = error.__cause__
        ended = Trial("RankError", _spell(error), type(cause).__name__, error.rank)
    except SimulationError as error:
        ended = Trial(type(error).__name__, _spell(error))
    except OutOfPatience:
        ended = Trial("Hang", f"still runs after {PATIENCE_SECONDS:.0f} s of real time")
    else:
        ended = _of_outcome(outcome, heard, parameters)
        _note(outcome.cluster, draw.seed)
    threads = _threads_left(threads_before)
    return replace(ended, leftover=(*ended.leftover, *threads)) if threads else ended


def _spell(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _of_outcome(outcome: VirtualRun, heard: Sequence[io.StringIO], parameters: ParameterRecord) -> Trial:
    dead = {rank.rank for rank in outcome.cluster.ranks if rank.is_dead}
    trained: dict[int, list[str]] = {rank: [] for rank in range(len(heard))}
    for (model, rank, name), held in parameters.digests().items():
        trained[rank].append(f"{model} {name} {held.hex()}")
    return Trial(
        output=tuple(tuple(map(without_times, own.getvalue().splitlines())) for own in heard),
        values=tuple(
            "" if rank in dead else digest([*trained[rank], tensors_of(own)])
            for rank, own in enumerate(outcome.results)
        ),
        time_ps=max(outcome.times_ps),
        utilisation=float(outcome.report.links.utilisation.max(initial=0)),
        iterations=len(outcome.report.iterations),
        leftover=tuple(_unfinished(outcome)),
    )


def _unfinished(outcome: VirtualRun) -> Iterator[str]:
    """Yield in words which messages and collectives were begun and never ended."""
    from collectives.program import Send
    from collectives.virtual.world import VirtualWorld

    world = VirtualWorld.of(outcome.cluster)
    for meeting_point in world.meeting_points.values():
        for rank, (step, position) in meeting_point.matching.waiting():
            is_send = isinstance(step.step[position], Send)
            what = " ".join(step.describe(position)) if is_send else "a receive"
            yield f"rank {meeting_point.hosts[rank]}: {what}, that nobody met"
    for rank, progress in world.progress.items():
        for execution in progress.in_flight:
            yield f"rank {rank}: {execution.call}, begun and not ended"


def clusters_left() -> list[int]:
    """Return the seeds of runs that are over, and whose clusters are still in memory; each once.

    The first cluster of a process does not count: torch keeps what it was first called with.
    """
    gc.collect()
    left = [seed for cluster, seed in _clusters.items() if cluster is not _first()]
    _clusters.clear()
    return sorted(left)


_clusters: WeakKeyDictionary[Cluster, int] = WeakKeyDictionary()
_firsts: list[ReferenceType[Cluster]] = []


def _first() -> Cluster | None:
    return _firsts[0]() if _firsts else None


def _note(cluster: Cluster, seed: int) -> None:
    _clusters[cluster] = seed
    if not _firsts:
        _firsts.append(ref(cluster))


def _threads_left(before: set[threading.Thread]) -> tuple[str, ...]:
    """Return in words which threads have come with a run and do not end."""
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(1.0)
    return tuple(f"thread {thread.name!r} still runs" for thread in left if thread.is_alive())


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Raise `OutOfPatience` in this thread where the body takes longer."""
    over = threading.Event()
    ident = threading.get_ident()

    def watch() -> None:
        if not over.wait(seconds):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(OutOfPatience))

    watcher = threading.Thread(target=watch, name="patience", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
