"""One fully sharded step in virtual time: units gathered before they compute, gradients scattered behind.

    forward, in the order in which parameters are needed    gather up to *prefetch* units ahead, wait, compute
    backward, in the order in which gradients are ready     the same; scatter a unit behind its last gradient
    the end                                                 wait for what is scattered, then the optimizer

All collectives are calls of one communicator, one after another.  The root is gathered first of all, and
not again in the backward pass.  Assumed: a forward pass mirrors the backward pass
(`ddp.simulation.replay.needs`).

Copies, where they are counted, are those of FSDP2 (``torch/distributed/fsdp/_fully_shard``,
``_fsdp_collectives.py``): a rank's shard into the input of an all-gather and gradients into the input of a
reduce-scatter, on streams of their own, so that only the collective waits for them; and parameters out of an
all-gather's output, for which the computation waits.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import groupby

import simpy

from collectives.timing.floor import floor_ps
from collectives.timing.queues import CallSpan
from ddp.profiles import Gradient, Profile
from ddp.reduction.strategies.fsdp import ROOT, Fsdp, units_of
from ddp.reduction.strategies.plan import ALL_GATHER, REDUCE_SCATTER
from ddp.reduction.timings import BucketRun
from ddp.simulation.communication import StepQueue
from ddp.simulation.losses import Losses
from ddp.simulation.replay import SimProcess, contended, needs
from sim.topology import Topology
from sim.trace import Trace


class ShardedReplay:
    """A fully sharded step in virtual time.

    Attributes:
        runs: the collectives, in the order of launch; ``bucket`` is the number of the unit, in the order of
            the profile.
        time_ps: length of the step, once it is done.
        trace: compute and communication.
    """

    def __init__(
        self,
        env: simpy.Environment,
        profile: Profile,
        strategy: Fsdp,
        queue: StepQueue,
        num_ranks: int,
        losses: Losses,
    ) -> None:
        self.env = env
        self.profile = profile
        self.strategy = strategy
        self.queue = queue
        self.num_ranks = num_ranks
        self.losses = losses
        self.runs: list[BucketRun] = []
        self.trace = Trace()
        self.time_ps = 0
        self._processes: list[simpy.Process] = []
        self._queued: list[simpy.Event] = []

        names = units_of([gradient.name for gradient in profile.gradients])
        self.units = list(dict.fromkeys(names))
        self._unit_of = [self.units.index(name) for name in names]

    def step(self) -> SimProcess:
        """Compute the two passes over the units, and wait for all that was scattered."""
        profile = self.profile
        needed = needs(profile)
        starts = [since_ps for since_ps, _ in needed]
        ends = [*starts[1:], profile.forward_ps]
        root = self.units.index(ROOT) if ROOT in self.units else self._unit_of[needed[0][1]]
        forward = [
            (self._unit_of[index], end - since) for (since, index), end in zip(needed, ends, strict=True)
        ]
        yield from self.compute("forward", starts[0])
        yield from self.pass_over("forward", [(root, 0), *forward], gathered=set())

        order = profile.ready_order()
        ready = [0, *(profile.gradients[index].ready_ps for index in order)]
        backward = [
            (self._unit_of[index], ready[place + 1] - ready[place]) for place, index in enumerate(order)
        ]
        kept = {root} if self.strategy.reshard else set(range(len(self.units)))
        scattered = yield from self.pass_over("backward", backward, gathered=kept)
        yield from self.compute("backward", profile.backward_ps - ready[-1])

        for place in scattered:
            yield from self.wait(place)
        yield from self.compute("optimizer", self.losses.optimizer_ps // self.num_ranks)
        self.time_ps = int(self.env.now)

    def pass_over(
        self, name: str, works: Sequence[tuple[int, int]], gathered: set[int]
    ) -> Generator[simpy.Event, object, list[int]]:
        """Compute the work of each unit in turn, gathering all but those *gathered*; return the scatters."""
        pieces = [
            (unit, sum(own for _, own in run)) for unit, run in groupby(works, key=lambda work: work[0])
        ]
        units = [unit for unit, _ in pieces]
        last = {unit: position for position, unit in enumerate(units)}
        launched: dict[int, int] = {}
        unused = set(units) - gathered
        scattered = []
        for position, (unit, work_ps) in enumerate(pieces):
            for ahead in [*dict.fromkeys(units[position:])][: 1 + self.strategy.prefetch]:
                if ahead not in gathered and ahead not in launched:
                    launched[ahead] = self.launch(ahead, ALL_GATHER, self.gathered_bytes(ahead))
            if unit in unused:
                unused.remove(unit)
                yield from self.wait(launched[unit])
                copied_ps = self.losses.copy_ps(self.gathered_bytes(unit))
                yield from self.compute(f"copy out:{self.units[unit]}", copied_ps)
            yield from self.compute(f"{name}:{self.units[unit]}", work_ps)
            if name == "backward" and position == last[unit]:
                scattered.append(self.launch(unit, REDUCE_SCATTER, self.scattered_bytes(unit)))
        return scattered

    def launch(self, unit: int, collective: str, nbytes: int) -> int:
        """Let every rank start a collective now, after those before it; return the place of its record."""
        now_ps = int(self.env.now)
        place = len(self.runs)
        self.runs.append(BucketRun(unit, collective, nbytes, now_ps, now_ps))
        self._queued.append(self.env.event())
        self._processes.append(self.env.process(self.carry(place)))
        return place

    def carry(self, place: int) -> SimProcess:
        """Copy what a collective sends to its input, take it through the queue and record when it ran."""
        run = self.runs[place]
        copied = run.nbytes if run.collective == REDUCE_SCATTER else run.nbytes // self.num_ranks
        if delay_ps := self.losses.copy_ps(copied) + self.losses.launch_ps:
            yield self.env.timeout(delay_ps)
        if place and not self._queued[place - 1].triggered:
            yield self._queued[place - 1]
        done = self.queue.launch(run.collective, run.nbytes)
        self._queued[place].succeed()
        span: CallSpan = yield done
        self.runs[place] = replace(self.runs[place], start_ps=span.start_ps, end_ps=span.end_ps)
        facts = {"bucket": run.bucket, "collective": run.collective, "nbytes": run.nbytes}
        what = f"{run.collective} unit {run.bucket}"
        self.trace.span(0, "communication", what, span.start_ps, span.end_ps, **facts)

    def wait(self, place: int) -> SimProcess:
        """Wait until a collective is done."""
        since_ps = int(self.env.now)
        yield self._processes[place]
        now_ps = int(self.env.now)
        run = self.runs[place]
        self.runs[place] = replace(run, exposed_ps=run.exposed_ps + now_ps - since_ps)
        if now_ps > since_ps:
            self.trace.span(0, "wait", f"wait for {run.collective} unit {run.bucket}", since_ps, now_ps)

    def compute(self, name: str, work_ps: int) -> SimProcess:
        """Let *work_ps* of computation pass, and longer if communication slows it down."""
        start_ps = int(self.env.now)
        yield from contended(self.env, work_ps, self.losses.contention, self.under_way)
        if work_ps:
            self.trace.span(0, "compute", name, start_ps, int(self.env.now))

    def under_way(self) -> list[simpy.Process]:
        """Return the collectives that have been launched and are not done."""
        return [process for process in self._processes if process.is_alive]

    def gathered_bytes(self, unit: int) -> int:
        """Return the bytes of a unit's parameters as they are gathered."""
        elements = sum(gradient.numel for gradient in self._gradients(unit))
        return self.padded(elements * self.strategy.gathered_bits // 8)

    def scattered_bytes(self, unit: int) -> int:
        """Return the bytes of a unit's gradients as they are scattered."""
        return self.padded(sum(gradient.nbytes for gradient in self._gradients(unit)))

    def _gradients(self, unit: int) -> list[Gradient]:
        own = zip(self.profile.gradients, self._unit_of, strict=True)
        return [gradient for gradient, its_unit in own if its_unit == unit]

    def padded(self, nbytes: int) -> int:
        """Return *nbytes* made up to equal whole elements of 8 bytes for every rank."""
        unit = 8 * self.num_ranks
        return -(-nbytes // unit) * unit


def sharded_floor_ps(
    compute_ps: int, runs: tuple[BucketRun, ...], topology: Topology, in_switches: bool
) -> int:
    """Return what no sharded step can go below: its compute, and its last gradient once it is ready."""
    last = max((run for run in runs if run.collective == REDUCE_SCATTER), key=lambda run: run.complete_ps)
    scattered_ps = last.complete_ps + floor_ps(REDUCE_SCATTER, last.nbytes, topology, in_network=in_switches)
    return max(compute_ps, scattered_ps)
