"""Search of layouts: all that divide and fit, each with its step; on all cores or on a cluster's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import product

from collectives.timing import Assumptions
from sim.files.device_file import load_device
from sim.topology import Topology
from sim.topology.description import load_network
from testbed.errors import UsageError
from testbed.output.table import Advance, seconds
from testbed.planning.layouts.framework import FRAMEWORKS, fullest_bytes
from testbed.planning.layouts.layout import (
    CHUNKS,
    EVEN,
    PLACEMENTS,
    RECOMPUTING,
    ZERO_BUBBLE,
    Layout,
    Training,
)
from testbed.planning.layouts.machine import DTYPE, Kernels, Machine, Messages
from testbed.planning.layouts.step import lost
from testbed.planning.layouts.transformer import Transformer
from testbed.tasks.spread import cores, results

AXES = tuple(own.name for own in fields(Layout))
"""Of a layout, and the imbalance of experts that it meets."""
MICRO_BATCHES = (1, 2, 4, 8, 16)
LEAST_TOKENS = 2048
"""Of a sequence that context parallelism leaves to a rank."""
_TASK = 50
"""Layouts of a task: some tenths of a second."""


def device_of(network: str, topology: Topology, given: str = "") -> str:
    """Return the device that computes on a *network*: that which is *given*, or its own.

    Raises:
        UsageError: nobody says which.
    """
    own = given or Assumptions.of_a_real_run(topology).device
    if not isinstance(own, str):
        raise UsageError(f"{network} does not say what GPUs it has; give --device, such as h100")
    return own


@dataclass(frozen=True)
class Search:
    """A question for the best layout.

    Attributes:
        model: that is trained.
        network: name or file.
        ranks: GPUs.
        seq: tokens of a sequence.
        sequences: of a step, of all ranks.
        device: name or file of the GPU's; empty: the network's own.
        memory_bytes: of a GPU; 0: what its device has.
        framework: one of `FRAMEWORKS`.
        only: axes with the values to which they are held.
        imbalances: of experts; each is met by every layout.
        name: of the model.
    """

    model: Transformer
    network: str
    ranks: int
    seq: int
    sequences: int
    device: str = ""
    memory_bytes: int = 0
    framework: str = "nanotron"
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()
    imbalances: tuple[str, ...] = (EVEN,)
    name: str = ""

    @cached_property
    def topology(self) -> Topology:
        """The network of all ranks."""
        return load_network(self.network).topology(self.ranks)

    @cached_property
    def device_name(self) -> str:
        """The device that computes.

        Raises:
            UsageError: neither the question nor the network says which.
        """
        return device_of(self.network, self.topology, self.device)

    @cached_property
    def limit_bytes(self) -> int:
        """Memory of a GPU.

        Raises:
            UsageError: nobody says how much that is.
        """
        own = self.memory_bytes or load_device(self.device_name).memory_bytes
        if own is None:
            raise UsageError(
                f"the device {self.device_name} does not say what memory it has; give --memory 80GB"
            )
        return own

    @cached_property
    def peak_flops(self) -> float:
        """Operations per second of a GPU, as its vendor states them."""
        return float(load_device(self.device_name).peaks[DTYPE])

    def training(self, layout: Layout) -> Training:
        """Return the step in *layout*."""
        return Training(self.model, layout, self.seq, self.sequences)

    def layouts(self, excluded: Counter[str]) -> Iterator[Layout]:
        """Yield the layouts that divide and fit; *excluded* counts the others by what is against them."""
        memory = FRAMEWORKS[self.framework].memory
        usable, held_to = memory.usable * self.limit_bytes, dict(self.only)
        for layout in self._divided(excluded):
            values = {axis: str(getattr(layout, axis)) for axis in held_to}
            if any(values[axis] not in allowed for axis, allowed in held_to.items()):
                continue
            training = self.training(layout)
            if not self._lies_evenly(layout):
                excluded["groups with unequal parts on nodes"] += 1
            elif training.leaves_stages_empty:
                excluded["stages left empty"] += 1
            elif layout.schedule == ZERO_BUBBLE and (layout.zero >= 2 or layout.recompute != "none"):
                excluded["zero bubble with ZeRO 2 or 3, or recomputing"] += 1
            elif fullest_bytes(training, memory) > usable:
                excluded["memory"] += 1
            else:
                yield layout

    def _lies_evenly(self, layout: Layout) -> bool:
        """Return whether groups have equally many ranks on each node, where messages are as NCCL's."""
        each = self.topology.ranks_per_node
        return self.topology.hardware is None or _lies_evenly(_groups_alone(layout), each)

    def _divided(self, excluded: Counter[str]) -> Iterator[Layout]:
        """Yield layouts in which everything divides, each with placements that differ."""
        model = self.model
        widths = model.heads, model.kv_heads, model.ffn, model.vocabulary, self.seq
        for tp, pp, cp in product(_divisors(self.ranks), repeat=3):
            dp, rest = divmod(self.ranks, tp * pp * cp)
            if rest or pp > model.layers or (cp > 1 and self.seq < cp * LEAST_TOKENS):
                continue
            if any(width % tp for width in widths) or self.seq % (2 * cp * tp) or self.sequences % dp:
                excluded["what does not divide"] += 1
                continue
            each = self.sequences // dp
            for micro_batch, schedule in product(MICRO_BATCHES, CHUNKS):
                if each % micro_batch or not _schedulable(schedule, pp, each // micro_batch, model.layers):
                    continue
                for ep, zero, recompute in product(self._expert_axes(dp * cp), range(4), RECOMPUTING):
                    if not zero or dp * cp > 1:
                        axes = dp, tp, pp, cp, ep, zero, micro_batch, schedule, recompute
                        for placed in self._placed(Layout(*axes)):
                            yield from (replace(placed, imbalance=own) for own in self.imbalances)

    def _expert_axes(self, shards: int) -> list[int]:
        experts = self.model.experts
        return [own for own in _divisors(shards) if experts % own == 0] if experts else [1]

    def _placed(self, layout: Layout) -> Iterator[Layout]:
        """Yield the layout in each placement whose groups fall otherwise on nodes."""
        seen, each = set(), self.topology.ranks_per_node
        for placement in PLACEMENTS:
            own = replace(layout, placement=placement)
            on_nodes = tuple(
                tuple(place // each for place in own.group(axis)) for axis in ("tp", "cp", "dp", "pp")
            )
            if on_nodes not in seen:
                seen.add(on_nodes)
                yield own


def _groups_alone(layout: Layout) -> Layout:
    """Return the layout that stands for all with the same groups."""
    return replace(layout, zero=0, micro_batch=1, schedule="1f1b", recompute="none", imbalance=EVEN)


@lru_cache(maxsize=100_000)
def _lies_evenly(layout: Layout, each: int) -> bool:
    """Return whether each group with collectives has equally many ranks on all of its nodes."""
    shards = layout.group("cp", "dp")
    groups = layout.group("tp"), layout.group("cp"), shards, shards[: layout.ep], shards[:: layout.ep]
    return all(len({*Counter(place // each for place in group).values()}) == 1 for group in groups)


def _divisors(number: int) -> list[int]:
    return [own for own in range(1, number + 1) if number % own == 0]


def _schedulable(schedule: str, pp: int, micro_batches: int, layers: int) -> bool:
    """Return whether a schedule is one, and another than 1F1B."""
    chunks = CHUNKS[schedule]
    if schedule == ZERO_BUBBLE:
        return pp > 1
    return chunks == 1 or (pp > 1 and micro_batches % pp == 0 and layers % (pp * chunks) == 0)


@dataclass(frozen=True)
class Found:
    """What a layout comes to.

    Attributes:
        layout: it.
        lost: seconds of its step by cause; see `testbed.planning.layouts.step.lost`.
        peak_bytes: what the fullest ranks hold.
    """

    layout: Layout
    lost: Mapping[str, float]
    peak_bytes: float

    @property
    def seconds(self) -> float:
        """Of a step."""
        return sum(self.lost.values())

    @property
    def family(self) -> str:
        """What divides the model, in words."""
        layout = self.layout
        axes = [axis for axis in ("tp", "pp", "cp", "ep") if getattr(layout, axis) > 1]
        data = [] if layout.shards == 1 else ["fsdp" if layout.zero == 3 else "dp"]
        return " + ".join([*data, *axes])


@lru_cache(maxsize=8)
def machine_of(search: Search) -> Machine:
    """Return what a search computes on."""
    kernels = Kernels(load_device(search.device_name))
    return Machine(kernels, Messages(search.topology), FRAMEWORKS[search.framework])


def evaluate(task: tuple[Search, Sequence[Layout]]) -> list[Found]:
    """Return what each layout of a task comes to."""
    search, layouts = task
    machine = machine_of(search)
    memory = machine.framework.memory
    found = []
    for layout in layouts:
        training = search.training(layout)
        found.append(Found(layout, lost(training, machine), fullest_bytes(training, memory)))
    return found


def run(
    search: Search,
    layouts: Sequence[Layout],
    advance: Advance,
    found: list[Found],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> None:
    """Append what each of *layouts* comes to, as it comes.

    Raises:
        NotSupportedError: the device cannot compute the model.
        LaunchError: the scheduler cannot be reached.
    """
    ordered = sorted(layouts, key=lambda own: (own.cp, own.tp, own.pp, own.micro_batch, own.placement))
    tasks = [(search, ordered[start : start + _TASK]) for start in range(0, len(ordered), _TASK)]
    number = workers or (1 if len(tasks) < 2 * cores() else cores())
    with closing(results(evaluate, tasks, workers=number, scheduler=scheduler)) as came:
        for some in came:
            for own in some:
                found.append(own)
                advance(f"{own.layout}: {seconds(own.seconds)}")
