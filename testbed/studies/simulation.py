"""Simulations of several algorithms at several sizes, one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, wraps
from typing import Any

import collectives
from collectives import Job, NotExactError
from collectives.catalogue.selectors import OF_LIBRARY
from collectives.program import Algorithm
from collectives.program.stand_in import standing_for
from collectives.timing import NVLS, Assumptions, Engine, observation, plan
from collectives.timing.assumptions import Model
from collectives.timing.links import LinkUse, Traffic
from collectives.timing.run import Run
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.topology import Topology
from sim.topology.placement import Placement
from testbed.benchmarking.candidates import SIMULATED, Candidate, choose_candidates
from testbed.calibration.confidence import Interval, as_fields, interval_of_run
from testbed.calibration.live.calibration import Origin
from testbed.errors import UsageError
from testbed.options.arguments import split_names
from testbed.output.table import Advance, counted, seconds, spell_size

_SHOWN_EVERY = 0.2  # seconds between two words on how far a run is


@dataclass(frozen=True)
class SimulationRequest:
    """What is to be simulated.

    Attributes:
        entries: the algorithms; where a name alone is known to a model, without a program.
        sizes: bytes of the buffer, as nccl-tests counts it.
        collective: what is carried out.
        topology: the network.
        placement: where the ranks are.
        engine: ``auto``, ``makespan``, ``events`` or ``ranks``.
        assumed: what is counted besides the links.
        conditions: under which the cluster works.
        assumptions: the same for a report, as it was asked for.
        links: whether it matters how long links were saturated.
        observe: whether every message is to be recorded, for a trace.
        calibrated: what the links' constants are from; None where the network's file does not say.
    """

    entries: tuple[Candidate, ...]
    sizes: tuple[int, ...]
    collective: str
    topology: Topology
    placement: Placement
    engine: Engine
    assumed: Assumptions
    links: bool
    observe: bool
    conditions: tuple[Condition, ...] = ()
    assumptions: dict[str, Any] = field(default_factory=dict)
    calibrated: Origin | None = None

    @property
    def timed_by(self) -> Model:
        """The model that times at least one of the algorithms, ``links`` where it times all."""
        of_library = any(entry.name in OF_LIBRARY for entry in self.entries)
        return "links" if self.assumed.model == "library" and not of_library else self.assumed.model


@dataclass(frozen=True)
class Simulated:
    """A run, who was meant by what name, and where nine of ten measurements are expected."""

    name: str
    run: Run
    interval: Interval | None = None

    @property
    def above_floor(self) -> float | None:
        """How many times the floor the time is; None where nothing has to be sent."""
        return self.run.seconds / self.run.floor_seconds if self.run.floor_seconds else None

    @property
    def has_links(self) -> bool:
        """Whether it is known what crossed which link."""
        return not self.run.no_links

    @property
    def bottleneck(self) -> LinkUse | None:
        """The fullest link; None where nothing is known of links, or crosses any."""
        return self.run.links.bottleneck if self.has_links else None

    def as_json(self, *, with_links: bool) -> dict[str, Any]:
        """Return the run as JSON types; figures are in seconds and bytes per second."""
        run = self.run
        bottleneck = self.bottleneck
        return {
            "algorithm": self.name,
            "chosen": run.algorithm,
            "collective": run.collective,
            "nbytes": run.nbytes,
            "ranks": run.num_ranks,
            "seconds": run.seconds,
            "time_ps": run.time_ps,
            "algbw": run.algbw,
            "busbw": run.busbw,
            "floor_seconds": run.floor_seconds,
            "above_floor": self.above_floor,
            "engine": run.engine,
            "model": run.model,
            "transport_model": run.transport_model,
            "conditions": list(run.conditions),
            "bottleneck": None if bottleneck is None else asdict(bottleneck),
            **as_fields(self.interval),
            **({"beyond": run.beyond or None} if run.interval_seconds or run.beyond else {}),
            **({"thread_blocks": run.thread_blocks} if run.thread_blocks else {}),
            **({"links": run.links.rows() if self.has_links else None} if with_links else {}),
        }


def entries_of(
    texts: Sequence[str], collective: str, num_ranks: int, ranks_per_node: int, assumed: Assumptions
) -> tuple[Candidate, ...]:
    """Return the algorithms that *texts* name, each a name or several with commas between.

    Raises:
        UsageError, UnknownAlgorithmError, NotSupportedError: see `choose_candidates`; several that are
            named must all run on *num_ranks*.
    """
    names = list(dict.fromkeys(name for text in texts for name in split_names(text)))
    if assumed.model not in ("links", "library"):
        return tuple(Candidate(name, None) for name in names)
    known = [NVLS, *(OF_LIBRARY if assumed.model == "library" else ())]
    programs = [name for name in names if name not in known]
    found = {name: Candidate(name, None) for name in known}
    if programs:
        candidates, refusals = choose_candidates(
            ",".join(programs),
            collective,
            num_ranks,
            ranks_per_node=ranks_per_node,
            native=assumed.software.transport.name == "gloo",
            transport=SIMULATED,
        )
        if named := [own for own in refusals if own.algorithm in programs]:
            raise UsageError(str(named[0]))
        found |= {own.name: own for own in candidates}
    ordered = [name for name in names if name in found]
    return tuple(found[name] for name in [*ordered, *(n for n in found if n not in [*names, *known])])


def simulated(request: SimulationRequest, advance: Advance, *, watched: bool) -> Iterator[Simulated]:
    """Simulate every algorithm at every size, size by size; tell *advance* if somebody is watching."""
    done = 0
    for nbytes in request.sizes:
        for entry in request.entries:
            what = f"{entry.name}, {spell_size(nbytes)}"
            advance(what, completed=done)
            watch = _ProgressOfRun(what, partial(advance, completed=done)) if watched else None
            run = _run(request, entry.simulated_as, nbytes, watch)
            if request.calibrated is not None and run.model == "links":
                run = replace(run, beyond=request.calibrated.beyond(nbytes))
            yield Simulated(entry.name, run, interval_of_run(run, request.assumed))
            done += 1


def _run(
    request: SimulationRequest, algorithm: str | Algorithm, nbytes: int, watch: _ProgressOfRun | None
) -> Run:
    if watch is not None and not isinstance(algorithm, str):
        algorithm = watch.counting(algorithm)
    reroutes = Scenario(request.topology, request.conditions).reroutes
    wanted = request.links or reroutes
    observe = request.observe or (wanted and _can_observe(request, algorithm, nbytes))
    try:
        return collectives.simulate(
            algorithm,
            nbytes=nbytes,
            topology=request.topology,
            collective=request.collective,
            engine=request.engine,
            placement=request.placement,
            conditions=request.conditions,
            assumptions=request.assumed,
            observe=observe,
            watch=None if watch is None else watch.at,
        )
    except NotExactError as error:
        raise UsageError(f"--engine makespan: {error}") from None


def _can_observe(request: SimulationRequest, algorithm: str | Algorithm, nbytes: int) -> bool:
    by_formula = request.assumed.model in ("nccl", "measured") or algorithm in (NVLS, *OF_LIBRARY)
    if request.engine == "makespan" or by_formula:
        return False
    job = Job(
        algorithm,
        nbytes,
        collective=request.collective,
        placement=request.placement,
        software=request.assumed.software,
    )
    return Traffic.of(plan(job, Scenario(request.topology))).num_messages <= observation.MAX_MESSAGES


class _ProgressOfRun:
    """Says every now and then how far a run is: how many steps were taken, and until when in virtual time."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        self._what = what
        self._say = say
        self._steps = 0
        self._now_ps = 0
        self._next_at = time.monotonic() + _SHOWN_EVERY

    def counting(self, algorithm: Algorithm) -> Algorithm:
        """Return *algorithm* as one that counts the steps taken: of all ranks at once, or of each."""
        program: Callable[..., Iterator[Any]] = algorithm.program

        @wraps(program)
        def counted(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for step in program(*args, **kwargs):
                self._steps += 1
                self._tell()
                yield step

        return replace(algorithm, program=standing_for(algorithm, counted))

    def at(self, now_ps: int) -> None:
        """Note that the events have come to *now_ps*."""
        self._now_ps = now_ps
        self._tell()

    def _tell(self) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + _SHOWN_EVERY
        steps = f": {counted(self._steps, 'step')}" if self._steps else ""
        reached = f", at {seconds(self._now_ps / 1e12)}" if self._now_ps else ""
        self._say(f"{self._what}{steps}{reached}")
