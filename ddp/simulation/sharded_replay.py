"""One fully sharded step in virtual time: units gathered before they compute, gradients scattered behind.

    forward, in the order in which units are needed       gather up to *prefetch* ahead, wait, compute
    backward, in the order in which gradients are ready   the same, then scatter the gradient
    the end                                               wait for what is scattered, then the optimizer

All collectives are calls of one communicator, one after another.  The unit that is needed first is not
gathered again in the backward pass.  Assumed: a forward pass mirrors the backward pass
(`ddp.simulation.replay.needs`); copies between units and buffers take no time.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import simpy

from collectives.models.floor import floor_ps
from collectives.simulation.engines.queues import CallSpan
from ddp.profiles import Profile
from ddp.reduction.strategies.fsdp import Fsdp
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
        runs: the collectives, in the order of launch; ``bucket`` is the unit's place in the profile.
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

    def step(self) -> SimProcess:
        """Compute the two passes over the units, and wait for all that was scattered."""
        profile = self.profile
        needed = needs(profile)
        forward = [index for _, index in needed]
        starts = [since_ps for since_ps, _ in needed]
        ends = [*starts[1:], profile.forward_ps]
        yield from self.compute("forward", starts[0])
        yield from self.pass_over(
            "forward",
            forward,
            [end_ps - start_ps for start_ps, end_ps in zip(starts, ends, strict=True)],
            gathered=set(),
        )

        backward = profile.ready_order()
        ready = [0, *(profile.gradients[index].ready_ps for index in backward)]
        works = [ready[place + 1] - ready[place] for place in range(len(backward))]
        kept = {forward[0]} if self.strategy.reshard else set(forward)
        scattered = yield from self.pass_over("backward", backward, works, gathered=kept)
        yield from self.compute("backward", profile.backward_ps - ready[-1])

        for place in scattered:
            yield from self.wait(place)
        yield from self.compute("optimizer", self.losses.optimizer_ps // self.num_ranks)
        self.time_ps = int(self.env.now)

    def pass_over(
        self, name: str, units: list[int], works: list[int], gathered: set[int]
    ) -> Generator[simpy.Event, object, list[int]]:
        """Compute *works* of *units* in turn, gathering all but those *gathered*; return the scatters."""
        launched: dict[int, int] = {}
        scattered = []
        for position, (unit, work_ps) in enumerate(zip(units, works, strict=True)):
            for ahead in units[position : position + 1 + self.strategy.prefetch]:
                if ahead not in gathered and ahead not in launched:
                    launched[ahead] = self.launch(ahead, ALL_GATHER, self.gathered_bytes(ahead))
            if unit in launched:
                yield from self.wait(launched[unit])
            yield from self.compute(f"{name}:{self.profile.gradients[unit].name}", work_ps)
            if name == "backward":
                nbytes = self.padded(self.profile.gradients[unit].nbytes)
                scattered.append(self.launch(unit, REDUCE_SCATTER, nbytes))
        return scattered

    def launch(self, unit: int, collective: str, nbytes: int) -> int:
        """Let every rank start a collective now, after those before it; return the place of its record."""
        now_ps = int(self.env.now)
        place = len(self.runs)
        self.runs.append(BucketRun(unit, collective, nbytes, now_ps, now_ps))
        self._processes.append(self.env.process(self.carry(place)))
        return place

    def carry(self, place: int) -> SimProcess:
        """Take a collective through the queue and record when it ran."""
        run = self.runs[place]
        if self.losses.launch_ps:
            yield self.env.timeout(self.losses.launch_ps)
        span: CallSpan = yield self.queue.launch(run.collective, run.nbytes)
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
        return self.padded(self.profile.gradients[unit].numel * self.strategy.gathered_bits // 8)

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
