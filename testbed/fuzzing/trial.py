"""Trial: a draw, carried out; how it ended, and what it left."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from collectives.program import Send
from collectives.virtual import Module, VirtualRun, run
from collectives.virtual.faults import VirtualCondition
from collectives.virtual.parameters.record import ParameterRecord
from collectives.virtual.world import VirtualWorld
from sim.cluster import RandomOrder
from sim.cluster.raised import raise_in, settle
from sim.errors import RankError, SimulationError
from testbed.errors import UsageError
from testbed.fuzzing.draw import STRATEGIES, Draw, Space, topology
from testbed.fuzzing.faults import Calm
from testbed.fuzzing.values import digest, tensors_of, without_times
from testbed.options.arguments import parse_compute_model

if TYPE_CHECKING:
    import torch

PATIENCE_SECONDS = 120.0
"""Seconds of real time after which a run is taken to hang; a virtual run finds a deadlock at once."""
MODULES = (
    "torch._dynamo",
    "collectives.virtual.setting",
    "collectives.virtual.parameters.record",
    "ddp.training",
)
"""What a run imports, and takes seconds."""
_models: list[tuple[ReferenceType[torch.nn.Module], int]] = []


@contextmanager
def ddp_defaults(draw: Draw) -> Iterator[list[type]]:
    """Let modules that are wrapped meanwhile have the bucket cap, views and strategy of *draw*.

    Yields the classes of what wrapped any, one for each module.
    """
    import torch.nn.parallel

    import ddp

    given: dict[str, Any] = {}
    if draw.bucket_cap_mb is not None:
        given["bucket_cap_mb"] = draw.bucket_cap_mb
    if draw.bucket_views:
        given["gradient_as_bucket_view"] = True
    strategy = {} if draw.strategy is None else {"strategy": draw.strategy}
    wrapped: list[type] = []
    with (
        _defaults(torch.nn.parallel.DistributedDataParallel, given, wrapped),
        _defaults(ddp.DistributedDataParallel, given | strategy, wrapped),
    ):
        yield wrapped


@contextmanager
def _defaults(kind: Any, given: Mapping[str, Any], wrapped: list[type]) -> Iterator[None]:
    """Let arguments of *kind* that are not given be *given* meanwhile, and note in *wrapped* who is made."""
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        wrapped.append(kind)
        named = signature.bind_partial(self, *args, **kwargs).arguments
        own = {name: value for name, value in given.items() if name not in named}
        if named.get("strategy", STRATEGIES[0]) not in STRATEGIES:
            own.pop("gradient_as_bucket_view", None)  # such strategies keep gradients where they like
        original(self, *args, **own, **kwargs)

    kind.__init__ = init
    try:
        yield
    finally:
        kind.__init__ = original


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
        wraps: a rank has wrapped a module for data parallelism, for which DDP's defaults count.
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
    wraps: bool = True
    leftover: tuple[str, ...] = ()

    @property
    def is_refusal(self) -> bool:
        """Whether the script has declined to run, by ``sys.exit``, or our DDP what was drawn for it."""
        return self.cause in ("SystemExit", "NotSupportedError")


def carry_out(draw: Draw, space: Space, calm: Calm | None = None) -> Trial:
    """Return how the run of *draw* ends; *calm*: what the run without its faults takes.

    Raises:
        UsageError: the script, or the module, cannot be read.
    """
    importlib.import_module("torch._dynamo")  # the first optimizer of a run would keep what that replaces
    conditions: Sequence[VirtualCondition] = () if calm is None else draw.conditions(calm)
    heard = [io.StringIO() for _ in range(draw.ranks)]
    silence = io.StringIO()
    threads_before = set(threading.enumerate())
    parameters = ParameterRecord()
    try:
        with _patience(PATIENCE_SECONDS), ddp_defaults(draw) as wrapped:
            outcome = run(
                Module(space.script) if space.is_module else space.script,
                network=topology(draw.network, draw.ranks),
                argv=space.argv if draw.argv is None else draw.argv,
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
    except SyntaxError as error:
        raise UsageError(f"{space.script} cannot be read as Python: {error}") from None
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from None
    except OutOfPatience:
        ended = Trial("Hang", f"still runs after {PATIENCE_SECONDS:.0f} s of real time")
    else:
        ended = replace(_of_outcome(outcome, heard, parameters), wraps=bool(wrapped))
        if calm is not None:
            _models.extend((ref(model), draw.seed) for model in _models_of(outcome))
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


def _models_of(outcome: VirtualRun) -> list[torch.nn.Module]:
    """Return the models in the globals of the scripts."""
    from torch.nn import Module

    left = [own for namespace in outcome.results for own in (namespace or {}).values()]
    return [own for own in left if isinstance(own, Module)]


def _unfinished(outcome: VirtualRun) -> Iterator[str]:
    """Yield in words which messages and collectives were begun and never ended."""
    world = VirtualWorld.of(outcome.cluster)
    for meeting_point in world.meeting_points.values():
        for rank, (step, position) in meeting_point.matching.waiting():
            is_send = isinstance(step.step[position], Send)
            what = " ".join(step.describe(position)) if is_send else "a receive"
            yield f"rank {meeting_point.hosts[rank]}: {what}, that nobody met"
    for rank, progress in world.progress.items():
        for execution in progress.in_flight:
            yield f"rank {rank}: {execution.call}, begun and not ended"


def models_left() -> list[int]:
    """Return the seeds of runs that are over, and of which models are still in memory; each once.

    The cluster itself is not asked for: caches of torch keep process groups, which know it.
    """
    gc.collect()
    left = sorted({seed for model, seed in _models if model() is not None})
    _models.clear()
    return left


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
            raise_in(ident, OutOfPatience)

    watcher = threading.Thread(target=watch, name="patience", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        settle()
