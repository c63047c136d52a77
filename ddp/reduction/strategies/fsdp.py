"""Fully sharded data parallelism: every rank keeps its part of parameters, gradients and optimizer's state.

A *unit* is gathered before it computes and freed behind it, in the forward pass and again in the backward
pass; its gradient is scattered as soon as it is ready.  As ``fully_shard`` is applied to each block and then
to the model, a unit is a block of the model, and the parameters outside of blocks are the root, which stays
gathered from the forward pass to the end of the backward pass (`units_of`).

It is simulated only (`ddp.step.sharded`): torch's own FSDP trains, also over our backend.

Source: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 16(12), 2023;
stage 3 of Rajbhandari et al., "ZeRO", SC 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddp.errors import UnknownStrategyError
from ddp.reduction.strategies.dear import scatter_and_gather
from ddp.reduction.strategies.plan import Layout, Plan
from ddp.reduction.strategies.strategy import Strategy

ROOT = ""
"""Name of the unit of parameters that are in no block."""


def units_of(names: Sequence[str]) -> list[str]:
    """Return the unit of each parameter, by its name in the model.

    A block is a module with a number, such as ``layers.3`` of ``layers.3.attention.weight``: an item of a
    ``ModuleList`` or a ``Sequential``, of nested ones the outermost.  Where no name has a number, nothing
    tells blocks, and each parameter is a unit of its own.
    """
    blocks = [_block(name) for name in names]
    return blocks if any(blocks) else list(names)


def _block(name: str) -> str:
    words = name.split(".")
    numbers = [place for place, word in enumerate(words) if word.isdecimal()]
    return ".".join(words[: numbers[0] + 1]) if numbers else ROOT


@dataclass(frozen=True)
class Fsdp(Strategy):
    """See the module's docstring.

    Attributes:
        prefetch: units that are gathered ahead of the one that computes; 1 is what ``limit_all_gathers`` of
            torch's FSDP lets be.
        reshard: whether units are freed behind the forward pass and gathered again (``FULL_SHARD``, stage 3);
            otherwise they stay (``SHARD_GRAD_OP``, stage 2).
        gathered_bits: of an element that is gathered, as mixed precision casts before it gathers.
    """

    prefetch: int = 1
    reshard: bool = True
    gathered_bits: int = 16

    kind = "fsdp"
    shards_update = True
    simulated_only = True

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            UnknownStrategyError: a parameter has no possible value.
        """
        if not isinstance(self.prefetch, int) or self.prefetch < 0:
            raise UnknownStrategyError(f"fsdp: prefetch must be a number from 0, got {self.prefetch!r}")
        if not isinstance(self.reshard, bool):
            raise UnknownStrategyError(f"fsdp: reshard must be True or False, got {self.reshard!r}")
        if self.gathered_bits not in (8, 16, 32, 64):
            raise UnknownStrategyError(
                f"fsdp: gathered_bits must be 8, 16, 32 or 64, got {self.gathered_bits!r}"
            )

    def plan(self, layout: Layout) -> Plan:
        """Plan the two collectives that each unit takes part in; when, is not the reducer's to say."""
        return scatter_and_gather(layout)
