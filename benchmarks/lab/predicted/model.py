"""Llama-like models and how their training is laid out over GPUs, as a row of a table says it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from benchmarks.lab.predicted.rows import Row


@dataclass(frozen=True)
class Layout:
    """A model, its batch and the groups of its ranks.

    Attributes:
        layers: of the model.
        hidden: width of a token.
        heads: of queries.
        kv_heads: of keys and of values.
        ffn: width between gate and down products.
        vocab: tokens that there are.
        tied: the embedding is the head's matrix.
        nodes: of 8 GPUs.
        gpus: all ranks.
        dp: ranks among which the batch is divided.
        tp: ranks among which layers are divided.
        pp: stages.
        zero: 1 where optimizer states are divided.
        mbs: sequences of a micro-batch.
        ga: micro-batches of a rank.
        seq: tokens of a sequence.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    tied: int
    nodes: int
    gpus: int
    dp: int
    tp: int
    pp: int
    zero: int
    mbs: int
    ga: int
    seq: int

    @classmethod
    def of(cls, row: Row) -> Layout:
        """Return that of a row of a table."""
        return cls(**{name: int(row[name]) for name in cls.__dataclass_fields__})

    @property
    def rows(self) -> int:
        """Tokens of a micro-batch."""
        return self.seq * self.mbs

    @property
    def tokens(self) -> int:
        """Tokens of a step, of all ranks."""
        return self.rows * self.ga * self.dp

    @property
    def kv_width(self) -> int:
        """Width of keys, and of values."""
        return self.hidden * self.kv_heads // self.heads

    @property
    def layer_params(self) -> int:
        """Parameters of a layer."""
        products = 2 * self.hidden * (self.hidden + self.kv_width) + 3 * self.hidden * self.ffn
        return products + 2 * self.hidden

    @cached_property
    def _cut(self) -> tuple[tuple[int, ...], int]:
        """Layers of each stage, and the stage of the head, cut greedily at equal parts of their cost."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.ffn
        costs = [layer] * self.layers + [self.vocab * self.hidden]
        counts, stage, so_far = [0] * self.pp, 0, 0
        for number, cost in enumerate(costs):
            so_far += cost
            if stage < self.pp - 1 and so_far * self.pp > sum(costs) * (stage + 1):
                stage += 1
            if number < self.layers:
                counts[stage] += 1
        return tuple(counts), stage

    @property
    def stages(self) -> tuple[int, ...]:
        """Layers of each stage."""
        return self._cut[0]

    @property
    def leaves_stages_empty(self) -> bool:
        """Whether the last stages have nothing to compute, with which such steps do not run."""
        return self._cut[1] < self.pp - 1

    def stage_params(self, position: int) -> int:
        """Parameters of a stage, of all its tensor-parallel ranks."""
        ends = 0
        if position == 0:
            ends += self.vocab * self.hidden
        if position == self.pp - 1 and not (self.tied and self.pp == 1):
            ends += self.vocab * self.hidden
        return self.stages[position] * self.layer_params + ends
