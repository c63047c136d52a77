"""A payload is right after the collective, and whatever is wrong with it is counted."""

from functools import partial

import pytest
import torch

from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.program.contracts import CONTRACTS
from collectives.transports.threaded import run_threads
from testbed.benchmarking.payload import ITEM_SIZES, Payload

COUNT = 7


def wrong_on(transport, collective, **options):
    kind, dtype = options.pop("kind", Payload), options.pop("dtype", torch.float32)
    place = {"rank": transport.rank, "world_size": transport.world_size}
    payload = kind(collective, COUNT, dtype, **place, **options)
    return payload.count_wrong(Communicator(ProgramLauncher(transport, {})))


@pytest.mark.parametrize("world_size", [1, 3, 4])
@pytest.mark.parametrize("dtype", ITEM_SIZES)
@pytest.mark.parametrize("collective", CONTRACTS)
def test_every_type_holds_the_payload(collective, dtype, world_size):
    """With each shipped algorithm, `testbed bench --algorithm all` checks it."""
    wrong = run_threads(partial(wrong_on, collective=collective, dtype=getattr(torch, dtype)), world_size)

    assert wrong == [0] * world_size


def _swap_halves(output):
    output.copy_(output.roll(len(output) // 2))


SPOILS = {
    "one element is another": lambda output: output[len(output) // 2 :][:1].add_(1),
    "all elements have moved by one": lambda output: output.copy_(output.roll(1)),
    "the halves are swapped": _swap_halves,
    "nothing has arrived": lambda output: output.fill_(255),
    "zeros have arrived": lambda output: output.zero_(),
}


class Spoiled(Payload):
    """What comes out is spoiled before it is checked."""

    def __init__(self, *arguments, spoil, **place):
        super().__init__(*arguments, **place)
        self.spoil = spoil

    def call(self, communicator):
        super().call(communicator)
        self.spoil(self.output)


@pytest.mark.parametrize("collective", CONTRACTS)
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_is_spoiled_is_counted_on_every_rank_with_a_result(collective, spoil):
    wrong = run_threads(partial(wrong_on, collective=collective, kind=Spoiled, spoil=spoil), 4)

    with_result = wrong[:1] if collective == "gather" else wrong
    assert all(with_result)


class Uncalled(Payload):
    """Nobody communicates."""

    def call(self, communicator):
        if self.input is not self.output and len(self.input) == len(self.output):
            self.output.copy_(self.input)


class Doubled(Payload):
    """Rank 1 takes part with what rank 0 has: one contribution is doubled, one is missing."""

    def call(self, communicator):
        if self.rank == 1:
            self.input.copy_(self._along(self._numbers(0), 0, len(self.input)))
        super().call(communicator)


@pytest.mark.parametrize(
    ("collective", "kind", "least"),
    [
        *((own, Uncalled, COUNT // 2) for own in CONTRACTS),
        *((own, Doubled, COUNT - 1) for own in ("all_reduce", "reduce", "reduce_scatter", "all_gather")),
        ("all_to_all", Doubled, COUNT - 1),
    ],
)
def test_ranks_that_do_not_communicate_or_send_what_another_has_are_found_out(collective, kind, least):
    wrong = run_threads(partial(wrong_on, collective=collective, kind=kind), 4)

    assert sum(wrong) >= least
