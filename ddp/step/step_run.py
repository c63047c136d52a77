"""Results of a simulated training step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from collectives.timing.assumptions import Assumptions, Model
from ddp.reduction.timings import BucketRun, bucket_rows, bucket_table, overlap_ratio
from sim.trace import Trace
from sim.units import format_time, to_seconds


@dataclass(frozen=True, slots=True, repr=False)
class StepRun:
    """A simulated training step, in a steady state.

    Attributes:
        time_ps: length of the step in picoseconds.
        compute_ps: of it, forward and backward pass: the length of the step on one rank.
        floor_ps: below which no algorithm and no strategy can be with these buckets.
        buckets: every collective of gradients and parameters, in the order of launch.
        engine: ``makespan``, ``events`` or ``ranks``, see `collectives.timing.simulation`; or
            ``closed form``.
        trace: compute and communication; rank 0 stands for all.
        model: of the communication: ``links``, or the name of a closed form.
        transport_model: how steps of programs were completed.
        alone_ps: what the step takes on one rank that trains alone, by the same terms; None: *compute_ps*.
        inefficiencies: terms that were counted besides the time of the messages.
        without_device: terms that would be counted if anybody said on what ranks compute.
        each_size_once: whether buckets of one size were simulated once, as there were very many messages.
        on_lines: whether of these sizes only powers of two were, and others are on the line between two.
        in_one_kernel: whether steps of the collectives' programs were launched together, at no cost each.
        in_switches: whether all-reduces took what switches take that reduce.
        thread_blocks: what counts of those that the algorithm's file states, and what not, in words.
        buffers: the collectives that brought buffers to all ranks, for which the forward pass waited.
    """

    time_ps: int
    compute_ps: int
    floor_ps: int
    buckets: tuple[BucketRun, ...]
    engine: str
    trace: Trace
    model: Model = "links"
    transport_model: str = "ideal"
    alone_ps: int | None = None
    inefficiencies: tuple[str, ...] = ()
    without_device: tuple[str, ...] = ()
    each_size_once: bool = False
    on_lines: bool = False
    in_one_kernel: bool = False
    in_switches: bool = False
    thread_blocks: str = ""
    buffers: tuple[BucketRun, ...] = ()

    def __repr__(self) -> str:
        return (
            f"StepRun({format_time(self.time_ps)}, {100 * self.efficiency:.1f} %, {self.num_buckets} buckets)"
        )

    @property
    def seconds(self) -> float:
        """Length of the step."""
        return to_seconds(self.time_ps)

    @property
    def compute_seconds(self) -> float:
        """Length of the step on one rank."""
        return to_seconds(self.compute_ps)

    @property
    def floor_seconds(self) -> float:
        """Below which no algorithm and no strategy can be with these buckets."""
        return to_seconds(self.floor_ps)

    @property
    def exposed_seconds(self) -> float:
        """Length of the step beyond its computation: communication not hidden, and inefficiencies."""
        return to_seconds(self.time_ps - self.compute_ps)

    @property
    def communication_seconds(self) -> float:
        """Time in which a collective was running, hidden or not."""
        return to_seconds(sum(run.end_ps - run.start_ps for run in (*self.buffers, *self.buckets)))

    @property
    def efficiency(self) -> float:
        """The step of one rank alone over this one: 1 where adding ranks costs nothing (weak scaling)."""
        alone_ps = self.compute_ps if self.alone_ps is None else self.alone_ps
        return alone_ps / self.time_ps if self.time_ps else 1.0

    @property
    def num_buckets(self) -> int:
        """Number of buckets."""
        return len({run.bucket for run in self.buckets})

    @property
    def overlap_ratio(self) -> float:
        """Part of the communication that no computation waited for; see `ddp.reduction.timings`."""
        return overlap_ratio((*self.buffers, *self.buckets))

    def in_words(self, asked: Assumptions) -> str:
        """Return what was counted besides the network, where *asked* is what was to be."""
        if self.in_one_kernel:
            asked = replace(asked, software=asked.software.in_one_kernel())
        transport = replace(asked.software.transport, name=self.transport_model)
        launch = asked.software.step_overhead
        if self.in_switches:
            asked = replace(asked, software=asked.software.in_one_kernel())
        words = asked.with_(transport_model=transport, model=self.model).in_words(self.inefficiencies)
        if self.in_switches:
            once = f", after a launch of {launch}" if launch else ""
            words = f"all-reduces take what switches that reduce allow{once}; else {words}"
        if self.without_device:
            words += f"; not counted without a device: {', '.join(self.without_device)}"
        if self.thread_blocks:
            words += f"; of the algorithm's file: {self.thread_blocks}"
        if self.on_lines:
            return f"{words}; buckets of powers of two simulated once, others on the line between two"
        return f"{words}; each size of bucket simulated once" if self.each_size_once else words

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each collective; see `ddp.reduction.timings.bucket_rows`."""
        return bucket_rows(self.buckets)

    def table(self) -> str:
        """Return the same as text."""
        return bucket_table(self.buckets)
