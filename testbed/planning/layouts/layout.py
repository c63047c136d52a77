"""Layouts of a training over ranks: axes, the groups of ranks that they make, and what a rank is given.

A step waits for the busiest of the ranks that divide experts (`Imbalance`): its experts' products, the
messages to and from it, and the activations of its experts grow by how much more it has than the mean; its
own experts have equal parts.  Assumed: the same in every layer and step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from collectives.virtual.computation.cuda.experts import rows_of_experts
from testbed.errors import UsageError
from testbed.planning.layouts.transformer import Transformer

_POWER_LAW, _MOST = "power-law:", 10.0


@dataclass(frozen=True)
class Imbalance:
    """What is stated of it.

    Attributes:
        factor: of the busiest rank to the mean; at most all tokens' experts lie on it.
        exponent: of the power law from which shares of experts are drawn, as `rows_of_experts` does; 0: the
            factor counts.
    """

    factor: float = 1.0
    exponent: float = 0.0

    def __str__(self) -> str:
        return f"{_POWER_LAW}{self.exponent:g}" if self.exponent else f"{self.factor:g}"

    @classmethod
    def parse(cls, text: str) -> Imbalance:
        """Return what *text* states: ``1.5``, or ``power-law:1.2``.

        Raises:
            UsageError: it is neither.
        """
        is_law = text.startswith(_POWER_LAW)
        try:
            value = float(text.removeprefix(_POWER_LAW))
        except ValueError:
            value = float("nan")
        if is_law and 0 < value <= _MOST:
            return cls(exponent=value)
        if not is_law and 1 <= value < float("inf"):
            return cls(factor=value)
        raise UsageError(
            f"--imbalance {text}: expected the busiest rank's tokens over the mean, from 1, such as 1.5, or "
            f"power-law:A with A above 0, up to {_MOST:g}, such as power-law:1.2"
        )

    def among(self, ranks: int, tokens: int, experts: int, chosen: int) -> float:
        """Return the factor among so many *ranks*.

        Args:
            ranks: that divide the experts.
            tokens: of one rank.
            experts: of all of them.
            chosen: experts of a token.
        """
        if ranks == 1:
            return 1.0
        factor = self.factor
        if self.exponent:
            busiest = rows_of_experts(tokens * ranks, experts, chosen, ranks, self.exponent)
            factor = sum(busiest) / (tokens * chosen)
        return min(factor, float(ranks))


EVEN = str(Imbalance())
"""All ranks have equally many."""


PLACEMENTS = ("tp-cp-dp-pp", "tp-cp-pp-dp", "dp-cp-tp-pp", "pp-tp-cp-dp")
"""Orders in which ranks are numbered: those of the first axis are neighbours, and share a node first."""
ZERO_BUBBLE = "zb-h1"
"""1F1B whose backward passes are split: ranks compute gradients of weights while they would wait."""
CHUNKS = {"1f1b": 1, "interleaved": 2, ZERO_BUBBLE: 1}
"""Schedules of pipelines, by the pieces of the model that a stage has."""
RECOMPUTING = ("none", "full")
"""Of a layer, what backward passes compute again."""
WORDS = {"schedule": tuple(CHUNKS), "recompute": RECOMPUTING, "placement": PLACEMENTS}
"""Values of axes that are no numbers."""


@dataclass(frozen=True)
class Layout:
    """How a training is divided over ranks, and in what order it is computed.

    Attributes:
        dp: ranks among which the batch is divided.
        tp: ranks among which layers are divided, and sequences between products.
        pp: stages.
        cp: ranks among which sequences are divided.
        ep: of the ranks with other batches, those among which experts are divided.
        zero: what ranks with other batches divide: 1 optimizer states, 2 gradients, too, 3 all.
        micro_batch: sequences that are computed at once.
        schedule: of the pipeline; one of `CHUNKS`.
        recompute: one of `RECOMPUTING`; ``full``: backward passes compute a layer again from its input.
        placement: one of `PLACEMENTS`.
        imbalance: of experts, as `Imbalance` is spelled; nobody chooses it.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    micro_batch: int = 1
    schedule: str = "1f1b"
    recompute: str = "none"
    placement: str = PLACEMENTS[0]
    imbalance: str = EVEN

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def shards(self) -> int:
        """Ranks that hold the same layers and divide what ZeRO divides."""
        return self.dp * self.cp

    def group(self, *axes: str) -> tuple[int, ...]:
        """Return the places of the ranks that differ from the first rank in *axes* alone."""
        order = self.placement.split("-")
        return _places(tuple((getattr(self, axis), axis in axes) for axis in order))

    def __str__(self) -> str:
        sizes = " × ".join(
            f"{axis} {getattr(self, axis)}"
            for axis in ("dp", "tp", "pp", "cp", "ep")
            if getattr(self, axis) > 1
        )
        more = [f"ZeRO {self.zero}", f"micro-batch {self.micro_batch}"]
        more += [self.schedule] if self.pp > 1 and self.schedule != "1f1b" else []
        more += ["recompute"] if self.recompute != "none" else []
        if self.placement != PLACEMENTS[0]:
            order = [axis for axis in self.placement.split("-") if getattr(self, axis) > 1]
            more.append(f"placed {'-'.join(order)}")
        more += [f"imbalance {self.imbalance}"] if self.imbalance != EVEN else []
        return f"{sizes or 'one rank'}, {', '.join(more)}"


@cache
def _places(order: tuple[tuple[int, bool], ...]) -> tuple[int, ...]:
    """Return the places that differ along some axes, of which *order* says sizes and whether they do."""
    apart, places = 1, [0]
    for size, differs in order:
        if differs:
            places = [place + number * apart for number in range(size) for place in places]
        apart *= size
    return tuple(places)


@dataclass(frozen=True)
class Training:
    """A step of a model in a layout.

    Attributes:
        model: that is trained.
        layout: over the ranks.
        seq: tokens of a sequence.
        sequences: of a step, of all ranks.
    """

    model: Transformer
    layout: Layout
    seq: int
    sequences: int

    @property
    def micro_batches(self) -> int:
        """Of a step, on a rank."""
        return self.sequences // (self.layout.dp * self.layout.micro_batch)

    @property
    def rows(self) -> int:
        """Tokens of a micro-batch on the ranks that divide layers."""
        return self.seq * self.layout.micro_batch // self.layout.cp

    @property
    def busiest(self) -> float:
        """What the busiest of the ranks that divide experts has of their rows, over the mean."""
        model, ep = self.model, self.layout.ep
        return Imbalance.parse(self.layout.imbalance).among(
            ep, self.rows, model.experts, model.experts_per_token
        )

    @property
    def tokens(self) -> int:
        """Tokens of a step, of all ranks."""
        return self.seq * self.sequences

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Layers of each stage: cut at equal parts of the cost, of interleaved schedules equally many.

        The layer that fills a stage's part is its last; the head is on the last stage.
        """
        model, pp = self.model, self.layout.pp
        if CHUNKS[self.layout.schedule] > 1:
            return (model.layers // pp,) * pp
        layer = 4 * model.hidden**2 + model.ffn_params * max(1, model.experts_per_token)
        whole = model.layers * layer + model.vocabulary * model.hidden
        counts, stage = [0] * pp, 0
        for number in range(1, model.layers + 1):
            counts[stage] += 1
            if number * layer * pp >= whole * (stage + 1):
                stage += 1
        return tuple(counts)

    @property
    def leaves_stages_empty(self) -> bool:
        """Whether stages have no layer, or too few micro-batches to begin with: such steps do not run.

        Behind the last layer the final norm can have a stage, and the head has one.
        """
        fewest = self.layout.pp - (0 if self.layout.schedule == ZERO_BUBBLE else 1)
        return 0 in self.stages[:-2] or self.micro_batches < fewest

    def stage_params(self, position: int) -> int:
        """Return the parameters of a stage, experts left out, of all ranks that divide its layers."""
        model, last = self.model, self.layout.pp - 1
        ends = 0
        if position == 0:
            ends += model.vocabulary * model.hidden
        if position == last and not (model.tied and last == 0):
            ends += model.vocabulary * model.hidden
        return self.stages[position] * model.layer_params + ends

    def held(self, position: int) -> tuple[tuple[float, int], ...]:
        """Return what a rank of a stage holds: parameters, and the ranks that hold the same or divide it."""
        layout, experts = self.layout, self.stages[position] * self.model.expert_params
        dense = self.stage_params(position) / layout.tp, layout.shards
        if not experts:
            return (dense,)
        return dense, (experts / (layout.tp * layout.ep), layout.shards // layout.ep)
