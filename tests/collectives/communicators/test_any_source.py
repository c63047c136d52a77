"""Tests of receives from any source, among messages that come when a plan says so."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives.communicators.any_source import AnySource
from collectives.errors import NotSupportedError

SOURCES, TAGS = (1, 2, 3), (0, 5)
EVERYBODY = SOURCES


class NothingComesError(Exception):
    """No message is left that could end a wait."""


class Arrival:
    """The receive of one message: where it goes, and when it was seen there."""

    def __init__(self, network: Network, number: int, source: int, tag: int, memory: torch.Tensor) -> None:
        self.network, self.key, self.number, self.memory = network, (source, tag), number, memory
        self.completed_ps = None
        self.source = None

    def is_completed(self) -> bool:
        come = self.network.come[self.key]
        if self.completed_ps is None and len(come) > self.number:
            self.completed_ps, self.source = come[self.number], self.key[0]
            self.memory.copy_(torch.tensor([self.key[0], self.number]))
        return self.completed_ps is not None

    def wait(self, timeout: float | None = None) -> None:
        self.network.wait_any([self], timeout)


class Network:
    """Messages that come one after another, as planned: source, tag and how much later than the last."""

    def __init__(self, planned: list[tuple[int, int, int]]) -> None:
        self.left = list(planned)
        self.now_ps = 0
        self.come = defaultdict(list)
        self.posted = Counter()
        self.any = AnySource(self.receive, self.wait_any, lambda: None, min, nullcontext())

    def receive(self, memory: torch.Tensor, source: int, tag: int) -> Arrival:
        self.posted[source, tag] += 1
        return Arrival(self, self.posted[source, tag] - 1, source, tag, memory)

    def wait_any(self, works: list[Any], timeout: float | None = None) -> None:
        while not sum(work.is_completed() for work in works):  # all are looked at
            self.advance()

    def advance(self) -> None:
        if not self.left:
            raise NothingComesError
        source, tag, later = self.left.pop(0)
        self.now_ps += later
        self.come[source, tag].append(self.now_ps)

    def start(self, tensor: torch.Tensor, sources: tuple[int, ...], tag: int):
        """Start a receive, as a communicator does."""
        if len(sources) > 1 or self.any.has_claim(sources[0], tag):
            return self.any.start(tensor, sources, tag)
        return self.receive(tensor, sources[0], tag)


@given(
    planned=st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from(TAGS), st.integers(0, 2))),
    actions=st.lists(
        st.one_of(
            st.tuples(
                st.just("start"),
                st.sampled_from([EVERYBODY, *((s,) for s in SOURCES)]),
                st.sampled_from(TAGS),
            ),
            st.tuples(st.sampled_from(["ask", "wait"]), st.integers(0, 30), st.none()),
            st.tuples(st.just("advance"), st.none(), st.none()),
        )
    ),
)
def test_every_message_is_received_once_in_the_order_of_its_source(planned, actions):
    network, works = Network(planned), []
    for what, which, tag in actions:
        if what == "start":
            tensor = torch.full((2,), -1)
            works.append((network.start(tensor, which, tag), tensor, which, tag))
        elif what == "advance" and network.left:
            network.advance()
        elif what in ("ask", "wait") and works:
            _ask(works[which % len(works)][0], what, network)
    while network.left:
        network.advance()
    for _ in works:  # who asks may claim what one that was asked before may take
        for work, *_ in works:
            _ask(work, "ask", network)

    got = defaultdict(list)
    for work, tensor, sources, tag in works:
        assert (work.source is None) == (tensor.tolist() == [-1, -1])
        if work.source is not None:
            source, number = tensor.tolist()
            assert source == work.source
            assert source in sources
            assert work.completed_ps == network.come[source, tag][number]
            got[source, tag].append(number)
    for key, numbers in got.items():
        assert numbers == list(range(len(numbers))), f"in the order of calls, and each once, of {key}"
    for work, _, sources, tag in works:
        if work.source is None:
            left = {source: len(network.come[source, tag]) - len(got[source, tag]) for source in sources}
            assert not any(left.values()), "nothing is left that would have been for it"


def _ask(work, what: str, network: Network) -> None:
    had = work.source is not None
    if what == "ask":
        assert work.is_completed() == (work.source is not None)
        assert work.source is not None or not had
        return
    try:
        work.wait()
    except NothingComesError:
        assert not network.left
        assert work.source is None
    else:
        assert work.source is not None


@given(
    gaps=st.permutations(SOURCES).flatmap(
        lambda order: st.tuples(
            *(st.tuples(st.just(source), st.just(0), st.integers(0, 1)) for source in order)
        )
    )
)
def test_the_earliest_comes_first_and_of_several_that_of_the_least_rank(gaps):
    network = Network(list(gaps))
    works = [network.any.start(torch.full((2,), -1), EVERYBODY, 0) for _ in SOURCES]
    for _ in SOURCES:
        network.advance()

    works[-1].wait()

    times = {source: network.come[source, 0][0] for source in SOURCES}
    assert [work.source for work in works] == sorted(SOURCES, key=lambda source: (times[source], source))


@pytest.mark.parametrize("other", [torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
def test_a_message_that_is_claimed_as_something_else_is_refused(other):
    network = Network([])
    network.any.start(torch.zeros(2), EVERYBODY, 5)
    network.any.start(torch.zeros(2), EVERYBODY, 5)

    with pytest.raises(NotSupportedError, match=r"under tag 5 .* rank 1, as 2 × torch.float32, and now"):
        network.any.start(other, EVERYBODY, 5)
