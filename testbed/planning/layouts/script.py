"""Recordings of a script's layouts: runs of few layers, stages and micro-batches.

A run has no data, and at most so many modules of every list of equal ones (`torch.nn.ModuleList`) as it is
asked for.  With fewer stages than the layout has, it has their ranks alone, the first of the network, which
keeps its links: so the groups of a stage keep their size and their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from collectives.timing import Assumptions
from sim import load_network
from testbed.errors import UsageError
from testbed.planning.layouts.script_layout import ScriptLayout
from testbed.planning.scripts import ENDED_EARLY, run_unheard

if TYPE_CHECKING:
    from collectives.virtual import VirtualRun
    from collectives.virtual.folding.folding import Folding

FEW, MORE = 3, 4
"""Layers of lists in runs that are recorded: in the third, parameters are gathered ahead as in all others."""
FEW_STAGES, MORE_STAGES = 2, 3
"""Stages of those that stand for pipelines of more: the ends, and the ends with one between them."""


@dataclass(frozen=True)
class Step:
    """What a step of a script takes.

    Attributes:
        seconds: of a steady iteration.
        compute_seconds: of that, computation.
        bubble_seconds: of that, what the first rank's device waits for messages that were not sent yet.
        sequence_seconds: what a sequence's arithmetic takes at the device's peak, in all stages.
        first_bytes: what a rank of the first stage holds at most; without a pipeline, any rank.
        last_bytes: of the last stage, likewise.
    """

    seconds: float
    compute_seconds: float
    bubble_seconds: float
    sequence_seconds: float
    first_bytes: float
    last_bytes: float

    @property
    def peak_bytes(self) -> float:
        """What a rank holds at most; stages between the first and the last are taken to hold no more."""
        return max(self.first_bytes, self.last_bytes)

    def fits(self, memory: int | None) -> bool:
        """Return whether so many bytes of a GPU are enough; None: nobody says how many it has."""
        return memory is None or self.peak_bytes <= memory

    def plus(self, times: float, before: Step, after: Step) -> Step:
        """Return this with so many times what *after* takes more than *before*."""

        def at(name: str) -> float:
            own, one, other = (getattr(step, name) for step in (self, before, after))
            return float(own + times * (other - one))

        return Step(*map(at, Step.__dataclass_fields__))


@dataclass(frozen=True)
class Part:
    """A few runs of a layout, which differ in their layers alone.

    Attributes:
        layout: with its stages and its batch.
        stages: that are run.
        batch: sequences of a replica that are run.
        network: name or file.
        ranks: GPUs that all stages have.
        compute: the device that computes.
        compares: whether ranks that are taken to do the same are compared; else groups tell them apart.
    """

    layout: ScriptLayout
    stages: int
    batch: int
    network: str
    ranks: int
    compute: str
    compares: bool = False


@dataclass(frozen=True)
class Recorded:
    """What runs of a part took.

    Attributes:
        few: a step with few layers.
        more: with more; the same where there are no more.
        layers: of both.
        depth: layers of the longest list as the script made it.
    """

    few: Step
    more: Step
    layers: tuple[int, int]
    depth: int

    def at(self, layers: int) -> Step:
        """Return a step with so many *layers*: each more takes what the last one took."""
        few, more = self.layers
        return self.few if more == few else self.few.plus((layers - few) / (more - few), self.few, self.more)


def record(part: Part) -> Recorded | None:
    """Return what runs of *part* take; None: it has fewer stages than its layout, and cannot stand for it.

    It cannot where a stage's ranks do not follow one another, or some stages have too few layers.

    Raises:
        UsageError: the script finishes no second iteration, or has no list of equal modules.
        RankError: it fails.
    """
    from collectives.virtual.folding.folding import Folding

    size, topology = part.layout.dp * part.layout.tp, load_network(part.network).topology(part.ranks)
    folding = Folding(size * part.stages, (), topology.ranks_per_node, part.compares)
    few, depth = _run(part, FEW, folding)
    chunks = part.layout.order.stages
    if not depth:
        raise UsageError(f"{part.layout.script}: expected a torch.nn.ModuleList of equal layers, found none")
    if part.stages < part.layout.pp and not (
        (depth - 1) * part.stages * chunks >= MORE * MORE_STAGES * chunks - 1
        and _follow_one_another(folding, size)
    ):
        return None
    if depth <= FEW:
        return Recorded(few, few, (depth, depth), depth)
    more, _ = _run(part, MORE, folding.found)
    return Recorded(few, more, (FEW, MORE), depth)


def in_full(part: Part) -> Step:
    """Return a step of a part that is the whole layout as a run without data takes it, with all layers.

    Raises:
        UsageError: the script finishes no second iteration.
        RankError: it fails.
    """
    return _run(part, None, None)[0]


def _run(part: Part, layers: int | None, folding: Folding | None) -> tuple[Step, int]:
    """Return a step with so many *layers*, None: all, and how many the longest list was given."""
    from collectives.virtual.streams.losses import PIPELINE

    layout, whole = part.layout, load_network(part.network).topology(part.ranks)
    with _shortened(layers) as lengths:
        run = run_unheard(
            layout.script,
            replace(layout, pp=part.stages, batch=part.batch).arguments,
            part.compute,
            network=replace(whole, num_ranks=layout.dp * layout.tp * part.stages),
            assumptions=Assumptions.on(whole, part.network, None, {"inefficiencies": ()}, on_gpu=True),
            fake=True,
            memory_limit="off",
            routing=layout.routing,
            fold=folding,
        )
    steady, used = run.report.steady(), run.report.utilization
    if steady is None:
        raise UsageError(f"{layout.script} {ENDED_EARLY}")
    useful = 0 if used is None else used.mfu * steady.seconds * part.stages / part.batch
    peaks = _peaks(run, layout.dp * layout.tp, part.stages)
    bubble = sum(own.seconds for own in run.report.lost_to if own.cause == PIPELINE)
    return Step(steady.seconds, steady.compute_seconds, bubble, useful, *peaks), max(lengths, default=0)


def _peaks(run: VirtualRun, size: int, stages: int) -> tuple[int, int]:
    """Return what ranks of the first and of the last stage hold at most, each stage of so many ranks."""
    from collectives.virtual.memory.memories import Memories

    peaks = {rank: memory.peak.nbytes for rank, memory in Memories.of(run.cluster).of_ranks.items()}
    first, last = (
        max((peak for rank, peak in peaks.items() if rank // size == end), default=0)
        for end in (0, stages - 1)
    )
    return first, last


def _follow_one_another(folding: Folding, size: int) -> bool:
    """Return whether all ranks that do the same are of one stage of so many ranks."""
    return all(own.ranks[0] // size == own.ranks[-1] // size for own in folding.classes().folded)


@contextmanager
def _shortened(layers: int | None) -> Iterator[list[int]]:
    """Let lists of equal modules keep so many at most, and yield how many each was given."""
    from torch.nn import ModuleList

    init, lengths = ModuleList.__init__, list[int]()

    def shorter(self: Any, modules: Any = None) -> None:
        given = None if modules is None else list(modules)
        if given and len({type(own) for own in given}) == 1:
            lengths.append(len(given))
            given = given[:layers]
        init(self, given)

    ModuleList.__init__ = shorter  # type: ignore[method-assign]
    try:
        yield lengths
    finally:
        ModuleList.__init__ = init  # type: ignore[method-assign]
