from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
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


def times(played):
    marks = [(mark.host_ps, mark.device_ps, mark.busy_ps, mark.host_idle_ps) for mark in played.marks]
    return marks, played.busy_ps, played.host_idle_ps, played.late_ps, played.num_late, played.end_ps


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
        return {rank: times(played) for players in own for rank, played in players.played()}

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


@dataclass
class Piece:
    """What a score has from one call to the next.

    Attributes:
        delays: how long after all have come the call ends for each rank.
        items: that are issued then; event 1000 + n is the end of the n-th call.
        lane: the stream of the call.
    """

    delays: list[int]
    items: list[Item]
    lane: int = 3


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    """Draw pieces in which much happens at one time, on few streams."""
    drawn, events = [], []
    for number in range(draw(st.integers(2, 5))):
        delays = draw(st.lists(st.sampled_from((0, 0, 8)), min_size=3, max_size=3))
        events.append(1000 + number)
        items: list[Item] = []
        for kind in draw(st.lists(st.sampled_from("lllwwwhrk"), max_size=6)):
            stream, duration = draw(st.integers(0, 1)), draw(st.sampled_from((0, 8, 8, 40)))
            event = draw(st.sampled_from(events[-3:]))
            if kind == "l":
                items.append(Launch(stream, duration, "kernel"))
            elif kind == "k":
                items.append(HostWork(duration, "work"))
            elif kind == "r":
                events.append(len(events))
                items.append(Record(stream, events[-1]))
            else:
                items.append(StreamWait(stream, event) if kind == "w" else HostWait(event, "why"))
        drawn.append(Piece(delays, items, draw(st.integers(3, 4))))
    return drawn


def played_by(groups, drawn, share=Fraction(0), at_first=None) -> list[Players]:
    """Return the players of each of *groups* of ranks, which have played a score of the same pieces.

    Only *at_first* pieces are there from the start, the others when all of these are played; None: all.
    """
    env = simpy.Environment(initial_time=0)
    calls = [AtTimes(env, dict(enumerate(piece.delays))) for piece in drawn]
    pace = Pace(launch_ps=2, share=share)
    scores = [Score() for _ in groups]
    everybody = [
        Players(env, score, dict.fromkeys(ranks, pace), ranks[0])
        for score, ranks in zip(scores, groups, strict=True)
    ]
    numbered = list(enumerate(zip(calls, drawn, strict=True)))
    first, rest = numbered[:at_first], numbered[len(numbered[:at_first]) :]
    for some in (first, rest):
        for score, players in zip(scores, everybody, strict=True):
            for number, (call, piece) in some:
                end, before = 1000 + number, 2000 + number
                score.items += [
                    Record(0, before), StreamWait(piece.lane, before),
                    Call(piece.lane, call, "all_reduce", "world"), Record(piece.lane, end),
                    *piece.items, Mark("iteration", frozenset(range(3000))),
                ]  # fmt: skip
            score.closed = some is not first or len(some) == len(drawn)
            players.play()
        env.run()
    return everybody


@given(pieces(), st.sampled_from([Fraction(0), Fraction(1, 2)]), st.sampled_from([1, 2, None]))
@settings(max_examples=4 * settings.default.max_examples)
def test_players_that_part_and_become_one_again_play_as_each_alone(drawn, share, at_first):
    (together,) = played_by([(0, 1, 2)], drawn, share, at_first)

    apart = played_by([(0,), (1,), (2,)], drawn, share, at_first)

    alone = {rank: played for players in apart for rank, played in players.played()}
    found = dict(together.played())
    assert {rank: times(found[rank]) for rank in range(3)} == {rank: times(alone[rank]) for rank in range(3)}
    assert found[0] == alone[0]


@pytest.mark.parametrize("wait", [HostWait, StreamWait])
def test_players_become_one_again_when_what_told_them_apart_is_over(wait):
    def piece(number, *delays):
        event = 1000 + number
        awaited = HostWait(event, "why") if wait is HostWait else StreamWait(0, event)
        return Piece(list(delays), [awaited, Launch(0, 10, "kernel")])

    parting, *later = piece(0, 0, 9, 0, 9), piece(1, 50, 50, 50, 50), piece(2, 50, 50, 50, 50)

    (parted,) = played_by([(0, 1, 2, 3)], [parting])
    (players,) = played_by([(0, 1, 2, 3)], [parting, *later])

    assert len(list(parted)) == 2
    assert len(list(players)) == 1
    ends = {rank: [mark.device_ps for mark in played.marks] for rank, played in players.played()}
    assert ends[1][0] > ends[0][0]
    assert ends[1][1:] == ends[0][1:]


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
