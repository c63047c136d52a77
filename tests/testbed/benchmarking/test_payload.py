"""A payload is right after the collective, and whatever is wrong with it is counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.program.contracts import CONTRACTS
from collectives.transports.threaded import run_threads
from testbed.benchmarking.payload import ITEM_SIZES, Payload

COUNT = 7


def wrong_on(transport: Any, collective: str, **options: Any) -> int:
    kind, dtype = options.pop("kind", Payload), options.pop("dtype", torch.float32)
    place = {"rank": transport.rank, "world_size": transport.world_size}
    payload = kind(collective, COUNT, dtype, **place, **options)
    return payload.count_wrong(Communicator(ProgramLauncher(transport, {})))


@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize("dtype", ITEM_SIZES)
@pytest.mark.parametrize("collective", CONTRACTS)
def test_every_type_holds_the_payload(collective: str, dtype: str, world_size: int) -> None:
    """With each shipped algorithm, `testbed bench --algorithm all` checks it."""
    wrong = run_threads(partial(wrong_on, collective=collective, dtype=getattr(torch, dtype)), world_size)

    assert wrong == [0] * world_size


def _swap_halves(output: torch.Tensor) -> None:
    output.copy_(output.roll(len(output) // 2))


SPOILS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one element is another": lambda output: output[len(output) // 2 :][:1].add_(1),
    "all elements have moved by one": lambda output: output.copy_(output.roll(1)),
    "the halves are swapped": _swap_halves,
    "nothing has arrived": lambda output: output.fill_(255),
    "zeros have arrived": lambda output: output.zero_(),
}


class Spoiled(Payload):
    """What comes out is spoiled before it is checked."""

    def __init__(self, *arguments: Any, spoil: Callable[[torch.Tensor], Any], **place: Any) -> None:
        super().__init__(*arguments, **place)
        self.spoil = spoil

    def call(self, communicator: Any) -> None:
        super().call(communicator)
        self.spoil(self.output)


@pytest.mark.parametrize("collective", CONTRACTS)
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_is_spoiled_is_counted_on_every_rank_with_a_result(collective: str, spoil: Any) -> None:
    wrong = run_threads(partial(wrong_on, collective=collective, kind=Spoiled, spoil=spoil), 4)

    with_result = wrong[:1] if collective == "gather" else wrong
    assert all(with_result)


class Uncalled(Payload):
    """Nobody communicates."""

    def call(self, communicator: Any) -> None:
        if self.input is not self.output and len(self.input) == len(self.output):
            self.output.copy_(self.input)


@pytest.mark.parametrize("collective", CONTRACTS)
def test_ranks_that_do_not_communicate_are_found_out(collective: str) -> None:
    wrong = run_threads(partial(wrong_on, collective=collective, kind=Uncalled), 4)

    assert sum(wrong) >= COUNT // 2


class Doubled(Payload):
    """Rank 1 takes part with what rank 0 has: one contribution is doubled, one is missing."""

    def call(self, communicator: Any) -> None:
        if self.rank == 1:
            self.input.copy_(self._along(self._numbers(0), 0, len(self.input)))
        super().call(communicator)


@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter", "all_gather", "all_to_all"])
def test_a_contribution_in_place_of_another_is_found_out(collective: str) -> None:
    wrong = run_threads(partial(wrong_on, collective=collective, kind=Doubled), 4)

    assert sum(wrong) >= COUNT - 1
