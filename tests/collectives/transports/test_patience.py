"""A rank looks as long as that helps, and hardly where it is in vain, before it sleeps."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from collectives.transports.shared_memory.doorbell import FEWEST_LOOKS, MOST_LOOKS
from collectives.transports.shared_memory.in_flight import InFlight
from collectives.transports.shared_memory.mailroom import Mailroom
from collectives.transports.shared_memory.segment import Segment


class ComesAtLook(InFlight):
    """Something that is there at the look of this number, or when the rank is about to sleep."""

    def __init__(self, mailroom: Mailroom, number: int) -> None:
        super().__init__(mailroom)
        self.number = number
        self.num_looks = 0
        self.slept = False

    def is_complete(self) -> bool:
        self.num_looks += 1
        self.slept = self.num_looks > self.mailroom_looks
        return self.slept or self.num_looks >= self.number

    def awaited(self) -> set[int]:
        return set()

    def doing(self) -> str:
        return "it waits for a number of looks"

    def wait(self, timeout: float = 1.0) -> None:
        self.mailroom_looks = self.mailroom.patience.looks
        super().wait(timeout)


def alone() -> Mailroom:
    return Mailroom(Segment(HashStore(), "patience", 0, 1, timeout=10.0))


def waits(mailroom: Mailroom, numbers: list[int]) -> Iterator[ComesAtLook]:
    for number in numbers:
        one = ComesAtLook(mailroom, number)
        one.wait()
        yield one


def test_a_rank_that_looks_in_vain_soon_sleeps_after_a_few_looks():
    looks = [one.num_looks - 1 for one in waits(alone(), [10**9] * 5)]

    assert looks == [MOST_LOOKS, MOST_LOOKS // 4, MOST_LOOKS // 16, FEWEST_LOOKS, FEWEST_LOOKS]


@given(in_vain=st.integers(0, 10), number=st.integers(2, FEWEST_LOOKS))
def test_what_comes_soon_is_waited_for_awake_and_makes_it_look_longer(in_vain, number):
    mailroom = alone()
    list(waits(mailroom, [10**9] * in_vain))
    before = mailroom.patience.looks

    assert not any(one.slept for one in waits(mailroom, [number] * 10))
    assert mailroom.patience.looks == min(before * 2**10, MOST_LOOKS) == MOST_LOOKS
