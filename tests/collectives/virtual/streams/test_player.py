from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.streams.players import Players
from collectives.virtual.streams.score import (
    Call,
    HostWait,
    HostWork,
    Item,
    Launch,
    Mark,
    Pace,
    Record,
    Score,
    StreamWait,
)
from collectives.virtual.streams.stretch import Stretch

LAUNCH = 4


def reference(items: list[Item]) -> tuple[int, dict[int, int], dict[int, int]]:
    """Return the host's time, when each stream is done and when each event happens, item by item."""
    host, tails, events = 0, dict.fromkeys(range(3), 0), {}
    for item in items:
        if isinstance(item, Launch):
            host += LAUNCH
            tails[item.stream] = max(tails[item.stream], host) + item.duration_ps
        elif isinstance(item, Record):
            events[item.event] = max(tails[item.stream], host)
        elif isinstance(item, StreamWait):
            tails[item.stream] = max(tails[item.stream], events[item.event])
        elif isinstance(item, HostWait):
            host = max(host, events[item.event])
        elif isinstance(item, HostWork):
            host += item.duration_ps
    return host, tails, events


@st.composite
def programs(draw: st.DrawFn) -> list[Item]:
    items = []
    num_events = 0
    for _ in range(draw(st.integers(1, 40))):
        kind = draw(st.sampled_from("llllrrwwhk"))
        stream, duration = draw(st.integers(0, 2)), draw(st.integers(0, 20))
        if kind == "l":
            items.append(Launch(stream, duration, "kernel"))
        elif kind == "k":
            items.append(HostWork(duration, "work"))
        elif kind == "r" or not num_events:
            num_events += 1
            items.append(Record(stream, num_events))
        elif kind == "w":
            items.append(StreamWait(stream, draw(st.integers(1, num_events))))
        else:
            items.append(HostWait(draw(st.integers(1, num_events)), "why"))
    return items


@given(programs(), st.integers(0, 40), st.sampled_from([Fraction(0), Fraction(1, 10)]))
def test_a_score_is_played_as_item_by_item_however_it_is_cut(items, cut, share):
    env = simpy.Environment(initial_time=0)
    score = Score()
    players = Players(env, score, {0: Pace(launch_ps=LAUNCH, share=share)}, 0)
    host, tails, events = reference(items)

    score.items.extend(items[:cut])
    players.play()
    score.items.extend([*items[cut:], Mark("end", frozenset(events))])
    score.closed = True
    players.play()

    player = players.of(0)
    assert player.host_ps == host
    assert {event: player.time_of(event) for event in events} == events
    played = player.played
    assert played.end_ps == max(host, *tails.values())
    (mark,) = played.marks
    assert mark.device_ps == max(host, tails[0])
    assert mark.device_ps == mark.busy_ps + mark.host_idle_ps + sum(mark.exposed.values())


@dataclass
class AtTimes:
    """A call that ends for each rank at a time of its own after all have come."""

    env: simpy.Environment
    delays: dict[int, int]
    come: dict[int, Any] = field(default_factory=dict)

    def begin(self, ranks, through) -> None:
        for rank in ranks:
            self.come[rank] = through
        if len(self.come) == len(self.delays):
            met_ps = int(self.env.now)
            for rank, delay in self.delays.items():
                self.env.timeout(delay).callbacks.append(lambda _, rank=rank: self.come[rank]([rank], met_ps))


def test_ranks_that_are_through_at_different_times_are_played_apart_and_as_if_alone():
    def body(score, call):
        score.items += [
            Launch(0, 10, "first"), Record(0, 1), StreamWait(1, 1), Call(1, call, "all_reduce", "world"),
            Record(1, 2), Launch(0, 30, "second"), StreamWait(0, 2), Launch(0, 10, "third"), Mark("end"),
        ]  # fmt: skip
        score.closed = True

    env = simpy.Environment(initial_time=0)
    call = AtTimes(env, {0: 20, 1: 50, 2: 20, 3: 50})
    score = Score()
    together = Players(env, score, {rank: Pace(launch_ps=1) for rank in range(4)}, 0)
    body(score, call)
    together.play()
    env.run()

    assert [together.of(rank).played.end_ps for rank in range(4)] == [51, 71, 51, 71]
    assert together.of(0) is together.of(2)
    assert together.of(1) is together.of(3)
    assert together.are_through


@given(
    programs(),
    st.lists(st.integers(0, 90), min_size=3, max_size=3),
    st.integers(0, 40),
    st.sampled_from([Fraction(0), Fraction(1, 10)]),
)
def test_players_that_have_parted_play_as_each_alone_what_is_gone_through_once(items, delays, cut, share):
    def played(*groups):
        env = simpy.Environment(initial_time=0)
        call, pace = AtTimes(env, dict(enumerate(delays))), Pace(launch_ps=LAUNCH, share=share)
        begin = [
            Call(1, call, "all_reduce", "world"), Mark("amid"), Launch(1, 9, "behind it"), Record(1, 99),
            HostWait(99, "why"),
        ]  # fmt: skip
        scores = [Score([*begin, *items[:cut]]) for _ in groups]
        own = [
            Players(env, score, dict.fromkeys(ranks, pace), ranks[0])
            for score, ranks in zip(scores, groups, strict=True)
        ]
        for players in own:
            players.play()
        env.run()
        for score, players in zip(scores, own, strict=True):
            score.items += [*items[cut:], Mark("end")]
            score.closed = True
            players.play()
        env.run()
        return [players.of(rank).played for players, ranks in zip(own, groups, strict=True) for rank in ranks]

    begun = Counter()

    def at(position, score, pace):
        begun[position] += 1
        return original(position, score, pace)

    original = Stretch.at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stretch, "at", at)
        together = played((0, 1, 2))

    assert together == played((0,), (1,), (2,))
    assert max(begun.values()) == 1


@pytest.mark.parametrize(
    ("share", "end"), [(Fraction(0), 1 + 10 + 32 + 40), (Fraction(1, 5), 1 + 10 + 40 + 40)]
)
def test_a_kernel_that_begins_beside_a_call_is_slowed_down_by_its_share(share, end):

    env = simpy.Environment(initial_time=0)
    score = Score()
    players = Players(env, score, {0: Pace(launch_ps=1, share=share)}, 0)
    score.items += [
        Launch(0, 10, "first"), Record(0, 1), StreamWait(1, 1),
        Call(1, AtTimes(env, {0: 20}), "all_reduce", "world"), Launch(0, 32, "beside it"),
        Launch(0, 40, "after it"),
    ]  # fmt: skip
    score.closed = True
    players.play()
    env.run()

    assert players.of(0).played.end_ps == end


def test_players_that_stand_alike_become_one():
    env = simpy.Environment(initial_time=0)
    first, other = Score(), Score()
    own = Players(env, first, {rank: Pace(launch_ps=1) for rank in range(3)}, 0)
    probe = Players(env, other, {3: Pace(launch_ps=1)}, 3)
    for score in (first, other):
        score.items += [Launch(0, 10, "kernel"), Mark("iteration")]
    own.play()
    probe.play()

    own.adopt([probe])
    first.items += [Launch(0, 10, "kernel")]
    first.closed = True
    own.play()

    assert own.of(0) is own.of(3)
    assert own.of(3).ranks == (0, 1, 2, 3)
    assert own.of(3).played.end_ps == 21


def test_kernels_take_as_long_as_on_the_slowest_and_copies_and_the_host_no_longer():
    env = simpy.Environment(initial_time=0)
    score = Score()
    players = Players(env, score, {0: Pace(launch_ps=1, slowest=Fraction(11, 10))}, 0)
    score.items += [
        HostWork(7, "work"),
        Launch(0, 100, "kernel"),
        Launch(0, 50, "Memcpy HtoD", "copy"),
        Mark("end"),
    ]
    score.closed = True
    players.play()

    (mark,) = players.of(0).played.marks
    assert (mark.device_ps, mark.busy_ps, mark.lost["slowest rank"]) == (8 + 110 + 50, 110, 10)
