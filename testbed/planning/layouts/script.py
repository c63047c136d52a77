"""Recordings of a script's layouts: runs of few layers, stages and micro-batches.

A run has no data, and at most so many modules of every list of equal ones (`torch.nn.ModuleList`) as it is
asked for.  With fewer stages than the layout has, it has their ranks alone, the first of the network, which
keeps its links: so the groups of a stage keep their size and their place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch.nn import ModuleList

from collectives.timing import Assumptions
from collectives.virtual import VirtualRun
from collectives.virtual.folding.folding import Folding
from collectives.virtual.gpu.routing import Routing
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.memory.memories import Memories
from collectives.virtual.streams.losses import PIPELINE
from sim import load_network
from sim.cluster import current_rank_thread
from testbed.errors import UsageError
from testbed.planning.layouts.extrapolation import extrapolated
from testbed.planning.layouts.passes import Passes, passes_watched
from testbed.planning.layouts.script_layout import ScriptLayout
from testbed.planning.scripts import ENDED_EARLY, run_unheard

FEW, MORE = 3, 4
"""Layers of lists in runs that are recorded: in the third, parameters are gathered ahead as in all others."""
ONE, TWO = 1, 2
"""Layers of a stage whose passes are replayed: such pipelines keep parameters between micro-batches."""
FEW_STAGES, MORE_STAGES = 2, 3
"""Ranks of pipelines that stand for others: the ends, and the ends with one between them."""


class Step(NamedTuple):
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


@dataclass(frozen=True)
class Part:
    """A few runs of a layout, which differ in their layers alone.

    Attributes:
        layout: that is run.
        network: name or file.
        ranks: GPUs of the layouts for which it is run, on which the network's links and late ranks depend.
        compute: the device that computes.
        compares: whether ranks that are taken to do the same are compared; else groups tell them apart.
        stands_in: it stands for pipelines of any number of ranks.
    """

    layout: ScriptLayout
    network: str
    ranks: int
    compute: str
    compares: bool = False
    stands_in: bool = False

    @property
    def is_replayed(self) -> bool:
        """Whether passes of few layers are enough."""
        return self.stands_in and self.layout.order.is_replayed


@dataclass(frozen=True)
class Recorded:
    """What runs of a part took.

    Attributes:
        few: a step with few layers.
        more: with more; the same where there are no more.
        layers: of both, in each stage.
        total: layers of all stages as the script made them.
        passes: of both, of a pipeline's stages.
    """

    few: Step
    more: Step
    layers: tuple[int, int]
    total: int
    passes: tuple[Passes, ...] = ()

    def at(self, layers: float) -> Step:
        """Return a step with so many *layers* in each stage: each more takes what the last one took."""
        few, more = self.layers
        if more == few:
            return self.few
        return extrapolated(self.few, (layers - few) / (more - few), self.few, self.more)


@dataclass(frozen=True)
class _Ran:
    """What one run took: a step, passes of stages, and the longest list of each place in the pipeline."""

    step: Step
    passes: Passes | None
    lengths: Sequence[int]


def record(part: Part) -> Recorded | None:
    """Return what runs of *part* take; None: it cannot stand for other pipelines.

    It cannot where a stage's ranks do not follow one another, or some stages have too few layers.

    Raises:
        UsageError: the script finishes no second iteration, or has no list of equal modules.
        RankError: it fails.
    """
    layout, topology = part.layout, load_network(part.network).topology(part.ranks)
    ranks = layout.dp * layout.tp * layout.pp
    folding = Folding(ranks, (), topology.ranks_per_node, part.compares)
    layers = (ONE, TWO) if part.is_replayed else (FEW, MORE)
    few = _run(part, layers[0], folding)
    depth, total = max(few.lengths), layout.order.stages * sum(few.lengths)
    if part.stands_in and not _stands(part, few, folding):
        return None
    if depth <= layers[0]:
        return Recorded(few.step, few.step, (depth, depth), total)
    more = _run(part, layers[1], folding.found)
    passes = tuple(own.passes for own in (few, more) if own.passes is not None)
    return Recorded(few.step, more.step, layers, total, passes)


def _stands(part: Part, ran: _Ran, folding: Folding) -> bool:
    """Return whether stages have enough layers, and all ranks that do the same are of one stage."""
    size, least = part.layout.dp * part.layout.tp, TWO if part.is_replayed else MORE
    follow = all(own.ranks[0] // size == own.ranks[-1] // size for own in folding.classes().folded)
    return follow and min(ran.lengths) >= least and (ran.passes is not None or not part.is_replayed)


def in_full(part: Part) -> Step:
    """Return a step of a part that is the whole layout as a run without data takes it, with all layers.

    Raises:
        UsageError: the script finishes no second iteration.
        RankError: it fails.
    """
    return _run(part, None, None).step


def _run(part: Part, layers: int | None, folding: Folding | None) -> _Ran:
    """Return what a run takes with so many *layers* of lists; None: all."""
    layout, whole = part.layout, load_network(part.network).topology(part.ranks)
    with _shortened(layers) as lengths, passes_watched() if part.is_replayed else nullcontext():
        run = run_unheard(
            layout.script,
            layout.arguments,
            part.compute,
            network=replace(whole, num_ranks=layout.dp * layout.tp * layout.pp),
            assumptions=Assumptions.on(whole, part.network, None, {}, on_gpu=True),
            late_among=part.ranks,
            fake=True,
            memory_limit="off",
            routing=_routing(layout, lengths) if layers is not None else layout.routing,
            fold=folding,
        )
    steady, used = run.report.steady(), run.report.utilization
    if steady is None:
        raise UsageError(f"{layout.script} {ENDED_EARLY}")
    useful = 0 if used is None else used.mfu * steady.seconds * layout.pp / layout.batch
    size = layout.dp * layout.tp
    bubble = sum(own.seconds for own in run.report.lost_to if own.cause == PIPELINE)
    step = Step(steady.seconds, steady.compute_seconds, bubble, useful, *_peaks(run, size, layout.pp))
    of_places = dict[int, int]()
    for rank in sorted(lengths):
        of_places.setdefault(rank // size, max(lengths[rank]))
    if layers is not None and not of_places:
        raise UsageError(f"{layout.script}: expected a torch.nn.ModuleList of equal layers, found none")
    return _Ran(step, Passes.of(run.cluster), [*of_places.values()])


def _peaks(run: VirtualRun, size: int, stages: int) -> tuple[int, int]:
    """Return what ranks of the first and of the last stage hold at most, each stage of so many ranks."""
    peaks = {rank: memory.peak.nbytes for rank, memory in Memories.of(run.cluster).of_ranks.items()}
    first, last = (
        max((peak for rank, peak in peaks.items() if rank // size == end), default=0)
        for end in (0, stages - 1)
    )
    return first, last


def _routing(layout: ScriptLayout, lengths: Mapping[int, Sequence[int]]) -> Routing | None:
    """Return a routing of which layers that are run stand for all those of their lists."""
    if layout.routing is None:
        return None
    stated = Routing.parse(layout.routing)
    return replace(stated, layers=lambda: max(map(max, lengths.values()), default=1), ranks=max(1, layout.ep))


@contextmanager
def _shortened(layers: int | None) -> Iterator[Mapping[int, list[int]]]:
    """Let lists of equal modules keep so many at most, and yield how many each was given, by rank."""
    init, lengths = ModuleList.__init__, defaultdict[int, list[int]](list)

    def shorter(self: Any, modules: Any = None) -> None:
        given, rank_thread = None if modules is None else list(modules), current_rank_thread()
        if given and rank_thread is not None and len({type(own) for own in given}) == 1:
            lengths[rank_thread.rank].append(len(given))
            given = given[:layers]
        init(self, given)

    with replaced([(ModuleList, "__init__", shorter)]):
        yield lengths
