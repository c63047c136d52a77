"""Communication of a simulated step: a queue of collectives, by programs on links or by a closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import simpy

from collectives.catalogue.native import by_itself, native_over
from collectives.catalogue.resolve import resolve_algorithm
from collectives.catalogue.selectors import NATIVE, NCCL, NVLS, Selector, is_one_kernel
from collectives.errors import NotExactError, NotSupportedError
from collectives.execution.transport_model import TransportModel
from collectives.program import Algorithm
from collectives.program.program_key import ProgramKey
from collectives.timing import Assumptions, Engine, Job, network_for, with_engine
from collectives.timing.closed_forms import closed_form_of
from collectives.timing.cost import selector_on
from collectives.timing.queues import (
    CallSpan,
    CollectiveQueue,
    EngineName,
    collective_queue,
    run_until,
)
from collectives.timing.ranks.attention import Attention
from collectives.timing.ranks.called_queue import CalledQueue
from collectives.timing.rows.makespan import Evaluated
from collectives.timing.run import Run
from ddp.reduction.strategies.plan import ALL_REDUCE, BROADCAST
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology

Choice = str | Callable[..., Any] | Algorithm | Selector
"""An algorithm, its name, or what chooses one by size."""


class StepQueue(Protocol):
    """The collectives of a step, one after another, in virtual time."""

    def launch(self, collective: str, nbytes: int) -> simpy.Event:
        """Let every rank start a collective now, after those before it.

        The event fires when the last rank is done; its value is a `CallSpan`.
        """


def settled(assumed: Assumptions, algorithm: Choice, scenario: Scenario) -> Assumptions:
    """Return *assumed* as it holds of a step's collectives by *algorithm* in *scenario*.

    What the vendor runs over Gloo goes on while its rank computes.  The library's own time is known where no
    condition holds; under one the programs that it would choose run on the links.
    """
    by_program = closed_form_of(algorithm, assumed.model) is None
    if assumed.model == "library" and (scenario.conditions or by_program):
        assumed = assumed.with_(model="links")
    if is_one_kernel(algorithm):
        assumed = replace(assumed, software=assumed.software.in_one_kernel())
    if algorithm == NATIVE and closed_form_of(algorithm, assumed.model) is None:
        assumed = assumed.with_(transport_model=by_itself(assumed.software.transport))
    return assumed


def communication_on(
    scenario: Scenario,
    algorithm: Choice,
    assumed: Assumptions,
    *,
    each_size_once: bool = False,
    on_lines: bool = False,
    parts: FormulaParts | None = None,
) -> Communication:
    """Return what collectives take in *scenario* by *algorithm*, of all-reduce, and what is *assumed*.

    Args:
        scenario: the network, and what holds on it.
        algorithm: of all-reduce.
        assumed: what is counted.
        each_size_once: see `ByPrograms`.
        on_lines: see `ByPrograms`.
        parts: see `ByFormula`; None: as they are.

    Raises:
        UnknownAlgorithmError, AlgorithmFileError: see `collectives.catalogue.selectors.fixed`.
        NotSupportedError: the closed form knows no transport or software of which *assumed* speaks, or what
            the vendor runs is not known.
        UnitError, ValueError: a quantity, a transport model or a closed form that cannot be.
    """
    rank_overhead = assumed.software.rank_overhead()
    if closed_form_of(algorithm, assumed.model) is not None:
        if assumed.software.has_overheads or assumed.software.protocol is not None:
            by = NVLS if algorithm == NVLS else f"model={assumed.model!r}"
            other = "a program, such as ring" if algorithm == NVLS else "model='links'"
            raise NotSupportedError(
                f"{by} is a closed form, of which overheads, reduction and protocol are a part; leave them "
                f"out, or take {other}"
            )
        return ByFormula(scenario, algorithm, assumed, parts or WHOLE)

    if algorithm == NATIVE:
        selector: Selector = native_over(assumed.software.transport, scenario.base.num_ranks)
    elif isinstance(algorithm, Selector):
        selector = algorithm
    else:
        selector = selector_on(scenario.base, algorithm, None, rank_overhead)

    def select(collective: str, nbytes: int) -> Algorithm:
        selected = selector.select(collective, nbytes)
        assert selected is not None, "native has been settled"
        return selected

    return ByPrograms(scenario, select, assumed, each_size_once, on_lines)


@dataclass(frozen=True)
class ByPrograms:
    """Collectives by programs, whose messages share links.

    Attributes:
        scenario: the network, and what holds on it.
        select: the program of a collective of so many bytes.
        assumed: what is counted.
        each_size_once: whether each size is simulated once, alone on an idle network.  Collectives follow one
            another then, each as long as that takes from when the one before it is done on every rank; where
            all ranks are done together, a queue of them takes the same.
        on_lines: whether of sizes only powers of two are simulated; what a program takes between two of them
            is on the line through these, as it is where messages share links as they do at both ends.
    """

    scenario: Scenario
    select: Callable[[str, int], Algorithm]
    assumed: Assumptions
    each_size_once: bool = False
    on_lines: bool = False

    def queue(
        self,
        env: simpy.Environment,
        engine: EngineName,
        itemsize: int,
        attention: Attention | None = None,
        earlier: list[Evaluated] | None = None,
    ) -> StepQueue:
        """Return a queue on a network of its own, of ranks that pay it such *attention*; None: always.

        *earlier* is what came of such a queue with another attention, see `collective_queue`.
        """
        if self.each_size_once:
            return FormulaQueue(env, partial(self.takes_ps, engine=engine, itemsize=itemsize))
        scenario, transport = self.scenario, self.assumed.software.transport
        rank_overhead = scenario.rank_overhead(
            self.assumed.software.rank_overhead(), range(scenario.base.num_ranks)
        )
        network = network_for(engine, env, scenario)
        if transport.progress == "calls" and transport.late_sends:
            if network is None:
                raise NotExactError("buckets in flight together: use engine='events', which follows them")
            return PolledStepQueue(CalledQueue(network, itemsize, rank_overhead, transport), self.select)
        queue = collective_queue(
            env,
            scenario.topology,
            engine=engine,
            itemsize=itemsize,
            rank_overhead=rank_overhead,
            transport_model=transport,
            attention=attention,
            network=network,
            earlier=earlier,
        )
        return _ProgramQueue(queue, self.select)

    def takes_ps(self, collective: str, nbytes: int, engine: EngineName, itemsize: int) -> int:
        """Return what a collective takes that has the network for itself, where no condition holds."""
        program = ProgramKey.of(self.select(collective, nbytes))
        software, ranks = self.assumed.software, range(self.scenario.base.num_ranks)
        transport = software.transport
        rank_overhead = Scenario.of(self.scenario.base, ()).rank_overhead(software.rank_overhead(), ranks)

        def simulated_ps(size: int) -> int:
            of = "auto" if self.on_lines else engine
            return _takes_ps(self.scenario.base, program, size, of, itemsize, rank_overhead, transport)

        low = 1 << max(0, nbytes.bit_length() - 1)
        if not self.on_lines or low % itemsize or nbytes == low:
            return simulated_ps(nbytes)
        low_ps, high_ps = simulated_ps(low), simulated_ps(2 * low)
        return low_ps + (high_ps - low_ps) * (nbytes - low) // low


@lru_cache(maxsize=4096)  # for steps of other models and strategies, too; a topology is compared by identity
def _takes_ps(
    topology: Topology,
    program: ProgramKey,
    nbytes: int,
    engine: Engine,
    itemsize: int,
    rank_overhead: RankOverhead,
    transport: TransportModel,
) -> int:
    def attempt(name: EngineName) -> CallSpan:
        env = simpy.Environment(initial_time=0)
        queue = collective_queue(
            env,
            topology,
            engine=name,
            itemsize=itemsize,
            rank_overhead=rank_overhead,
            transport_model=transport,
        )
        span: CallSpan = run_until(env, queue.submit(program.algorithm, nbytes))
        return span

    span, _ = with_engine(engine, attempt)
    return span.end_ps - span.start_ps


@dataclass(frozen=True)
class _ProgramQueue:
    queue: CollectiveQueue
    select: Callable[[str, int], Algorithm]

    def launch(self, collective: str, nbytes: int) -> simpy.Event:
        return self.queue.submit(self.select(collective, nbytes), nbytes)


class PolledStepQueue:
    """Collectives of a step that go on when their ranks call; buckets may be in flight together."""

    def __init__(self, queue: CalledQueue, select: Callable[[str, int], Algorithm]) -> None:
        self.queue = queue
        self._select = select
        self._ends_ps: list[int | None] = []

    def launch(self, collective: str, nbytes: int) -> simpy.Event:
        """Let every rank post a collective now; the queue numbers them in this order.

        A collective is said to begin when those posted before it have ended; one that ends before them
        begins when it ends.
        """
        number = len(self._ends_ps)
        self._ends_ps.append(None)
        submitted_ps = int(self.queue.env.now)
        _, over = self.queue.submit(self._select(collective, nbytes), nbytes)
        spanned = self.queue.env.event()

        def note(_: simpy.Event) -> None:
            end_ps = int(self.queue.env.now)
            self._ends_ps[number] = end_ps
            before_ps = [end_ps if ended_ps is None else ended_ps for ended_ps in self._ends_ps[:number]]
            start_ps = min(max([submitted_ps, *before_ps]), end_ps)
            spanned.succeed(CallSpan(start_ps, end_ps))

        assert over.callbacks is not None
        over.callbacks.append(note)
        return spanned


@dataclass(frozen=True)
class FormulaParts:
    """How many times as long the parts of a closed form's time are taken to be, once it has chosen.

    Attributes:
        latency: what does not depend on the size.
        rest: what does.
    """

    latency: Fraction = Fraction(1)
    rest: Fraction = Fraction(1)

    def of(self, run: Run) -> int:
        """Return the time of *run* with its parts so long, in picoseconds.

        Raises:
            NotSupportedError: its parts are not told apart.
        """
        if self == WHOLE:
            return run.time_ps
        if run.latency_ps is None:
            raise NotSupportedError(f"of {run.algorithm} by model={run.model!r} latency is not told apart")
        return round(run.latency_ps * self.latency + (run.time_ps - run.latency_ps) * self.rest)


WHOLE = FormulaParts()
"""As the closed form has it."""

OTHERS = MappingProxyType({"library": NCCL, "nccl": "auto", "measured": "auto"})
"""What a model of time goes by for collectives other than all-reduces."""


@dataclass(frozen=True)
class ByFormula:
    """Collectives by a closed form: *algorithm* all-reduces, others go by what the form chooses."""

    scenario: Scenario
    algorithm: Choice
    assumed: Assumptions
    parts: FormulaParts = WHOLE

    def queue(
        self,
        env: simpy.Environment,
        engine: EngineName,
        itemsize: int,
        attention: Attention | None = None,
        earlier: list[Evaluated] | None = None,
    ) -> StepQueue:
        """Return a queue in which a collective takes what the formula says."""
        return FormulaQueue(env, partial(self.takes_ps, engine=engine, itemsize=itemsize))

    def takes_ps(self, collective: str, nbytes: int, engine: EngineName, itemsize: int) -> int:
        """Return what one collective takes.

        Raises:
            NotSupportedError: the closed form does not know it, the network or a condition.
        """
        model = self.assumed.model
        if model == "measured" and collective == BROADCAST:
            model = "library"  # of broadcasts, which bring a module's buffers, networks hold no measurements
        algorithm: Any = self.algorithm if collective == ALL_REDUCE else OTHERS.get(model, self.algorithm)
        formula = closed_form_of(algorithm, model)
        assert formula is not None
        job = Job(algorithm, nbytes, collective=collective, software=self.assumed.software)
        return self.parts.of(formula(job, self.scenario))


Communication: TypeAlias = ByPrograms | ByFormula
"""What the collectives of a step take on a network."""


class FormulaQueue:
    """Collectives that take the times that *time_ps* gives, asked once of each size, one after another."""

    def __init__(self, env: simpy.Environment, time_ps: Callable[[str, int], int]) -> None:
        self._env = env
        self._time_ps = cache(time_ps)
        self._free_ps = 0

    def launch(self, collective: str, nbytes: int) -> simpy.Event:
        """Let every rank start a collective now, after those before it."""
        now_ps = int(self._env.now)
        start_ps = max(self._free_ps, now_ps)
        self._free_ps = start_ps + self._time_ps(collective, nbytes)
        return self._env.timeout(self._free_ps - now_ps, value=CallSpan(start_ps, self._free_ps))


def name_of(algorithm: Choice) -> str:
    """Return how *algorithm* is called in reports."""
    if isinstance(algorithm, Selector):
        return type(algorithm).__name__.lower()
    return algorithm if isinstance(algorithm, str) else str(resolve_algorithm(algorithm))
