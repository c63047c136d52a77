"""Ready gradients: taken into their buckets as they come, and told to the reducer."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Parameter

from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.in_flight import BucketsInFlight
from ddp.autograd.observation.checks import GradientChecks
from ddp.autograd.observation.iteration_times import IterationTimes
from ddp.autograd.observation.timeline import RankTimeline
from ddp.autograd.reduction import Reduction
from ddp.autograd.unused import Readiness
from ddp.buckets.deferred_gradient import DeferredGradients
from ddp.reduction.events import GradReady
from ddp.reduction.reducer import Phase


class ReadyGradients:
    """Takes gradients when autograd has accumulated them.

    Args:
        buckets: into which they are taken.
        in_flight: says by what they are divided.
        timeline: says when gradients come.
        times: is told of the last one.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
        checks: are shown each gradient before it is taken.
        deferred: take the place of each gradient when it is taken.
        num_passes: backward passes until gradients are reduced.

    Attributes:
        ready_ps: when each gradient of the latest pass was ready, in the order in which they came.
    """

    def __init__(
        self,
        buckets: GradientBuckets,
        in_flight: BucketsInFlight,
        timeline: RankTimeline,
        times: IterationTimes,
        readiness: Readiness | None,
        checks: GradientChecks | None,
        deferred: DeferredGradients | None,
        num_passes: int,
    ) -> None:
        self.ready_ps: dict[int, int] = {}
        self._buckets = buckets
        self._in_flight = in_flight
        self._timeline = timeline
        self._times = times
        self._readiness = readiness
        self._checks = checks
        self._deferred = deferred
        self._num_passes = num_passes
        self._num_local_passes_left = num_passes - 1
        self._has_reached_any = False

    def report_to(self, reduction: Reduction) -> None:
        """Tell *reduction*, which is not kept alive if it is a weak proxy."""
        self._reduction = reduction

    def unused(self) -> list[Parameter]:
        """Return the parameters known to be unused on this rank."""
        if self._readiness is None:
            return []
        return [self._buckets.parameters[index] for index in sorted(self._readiness.surely_unused)]

    def begin(self) -> None:
        """Begin a pass."""
        self.ready_ps.clear()

    def gradient_ready(self, index: int) -> None:
        """Take what is ready, and advance what is in flight, unless the pass only adds up."""
        self._has_reached_any = True
        if self._num_local_passes_left:
            return
        if self._readiness is None:
            self._take((index,))
        else:
            self._take(tuple(self._readiness.accumulated(index)))

    def gradient_kept(self, index: int) -> None:
        """Take note of a gradient that is not reduced."""
        if self._readiness is not None:
            self._readiness.kept(index)

    def gradient_early(self, index: int) -> None:
        """Take a gradient after all."""
        if self._readiness is None:
            self.gradient_ready(index)

    def take_nothing(self) -> None:
        """Take zeros for every gradient."""
        for index in range(len(self._buckets.parameters)):
            self._buckets.take_nothing(index)
            self._note(index)

    def end(self) -> None:
        """Take what is ready only because the pass is over."""
        if self._has_reached_any:
            self._num_local_passes_left = (self._num_local_passes_left or self._num_passes) - 1
        self._has_reached_any = False
        if self._reduction.phase is Phase.FILLING and self._readiness is not None:
            self._take(tuple(self._readiness.pass_ended()))

    def abandon(self) -> None:
        """Start anew: what has come in the pass counts for nothing."""
        self._has_reached_any = False
        if self._readiness is not None:
            self._readiness.reset()

    def _take(self, ready: Sequence[int]) -> None:
        """Copy gradients into their buckets, and advance what is in flight."""
        if self._reduction.phase is not Phase.FILLING:
            self._reduction.begin()

        divisor = self._in_flight.local_divisor
        for index in ready:
            if self._checks is not None:
                self._checks.taken(index)
            self._buckets.take(index, divisor)
            self._note(index)
            if self._deferred is not None:
                self._deferred.put(index)
        self._reduction.advance()

    def _note(self, index: int) -> None:
        """Take note of a gradient, and tell the reducer, which refuses one that comes twice."""
        timeline = self._timeline
        self.ready_ps[index] = timeline.latest_ps if timeline.matters else timeline.now_ps()
        self._times.last("last_gradient")
        self._reduction.tell(GradReady(index))
