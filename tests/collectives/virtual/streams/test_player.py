"""Players of a score: they play what hosts and streams would do item by item, also in closed form."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.virtual.streams import Gpu
from collectives.virtual.streams.account import Cause, Played
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
from sim import Cluster, Device, load_network
from sim.units import SECOND
from tests.collectives.virtual.clusters import rank_thread

LAUNCH = 2
SHARES = st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 2)])


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
def items_of(draw: st.DrawFn, events: list[int], streams: int, durations, most: int) -> list[Item]:
    """Draw what is issued on *streams* and waits for the last *events*, to which it adds its own."""
    items: list[Item] = []
    for kind in draw(st.lists(st.sampled_from("lllwwwhrk"), max_size=most)):
        stream, duration = draw(st.integers(0, streams - 1)), draw(durations)
        if kind == "l":
            items.append(Launch(stream, duration, "kernel"))
        elif kind == "k":
            items.append(HostWork(duration, "work"))
        elif kind == "r" or not events:
            events.append(len(events))
            items.append(Record(stream, events[-1]))
        else:
            event = draw(st.sampled_from(events[-3:]))
            items.append(StreamWait(stream, event) if kind == "w" else HostWait(event, "why"))
    return items


programs = st.builds(list).flatmap(lambda events: items_of(events, 3, st.integers(0, 20), 40))


def alone(env: simpy.Environment, *ranks: int, launch_ps: int = LAUNCH, **pace) -> tuple[Score, Players]:
    """Return an empty score, and the players of it for *ranks* of one pace."""
    score = Score()
    return score, Players(env, score, dict.fromkeys(ranks, Pace(launch_ps=launch_ps, **pace)), ranks[0])


@given(programs, st.integers(0, 40), SHARES)
def test_a_score_is_played_as_item_by_item_however_it_is_cut(items, cut, share):
    score, players = alone(simpy.Environment(initial_time=0), 0, share=share)
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


@dataclass(frozen=True)
class Meeting:
    """A call behind stream 0 on *lane*; event 1000 + n is the end of the n-th for each rank."""

    delays: tuple[int, ...]
    lane: int = 3

    def items(self, env: simpy.Environment, number: int) -> list[Item]:
        """Return what stands for it in a score."""
        call = AtTimes(env, dict(enumerate(self.delays)))
        return [
            Record(0, 2000 + number), StreamWait(self.lane, 2000 + number),
            Call(self.lane, call, "all_reduce", "world"), Record(self.lane, 1000 + number),
        ]  # fmt: skip


END = Mark("iteration", frozenset(range(3000)))


@st.composite
def performances(draw: st.DrawFn) -> list[Item | Meeting]:
    """Draw meetings of three ranks with items between them; much happens at one time, on few streams."""
    drawn, events = [], []
    for number in range(draw(st.integers(1, 5))):
        delays = draw(st.tuples(*[st.sampled_from((0, 0, 8))] * 3))
        drawn.append(Meeting(delays, draw(st.sampled_from((1, 3, 4)))))
        events.append(1000 + number)
        drawn += [*draw(items_of(events, 2, st.sampled_from((0, 8, 8, 40)), 6)), END]
    return drawn


def played_by(groups, drawn, share=Fraction(0), cut=1000) -> list[Players]:
    """Return the players of each of *groups* of ranks, which have played a score of what is *drawn*.

    Only *cut* items are there from the start, the others when all of these are played.
    """
    env = simpy.Environment(initial_time=0)
    items, meetings = [], 0
    for each in drawn:
        items += each.items(env, meetings) if isinstance(each, Meeting) else [each]
        meetings += isinstance(each, Meeting)
    played = [alone(env, *ranks, share=share) for ranks in groups]
    for some, is_all in ((items[:cut], cut >= len(items)), (items[cut:], True)):
        for score, players in played:
            score.items += some
            score.closed = is_all
            players.play()
        env.run()
    return [players for _, players in played]


def times(played):
    marks = [(mark.host_ps, mark.device_ps, mark.busy_ps, mark.host_idle_ps) for mark in played.marks]
    return marks, played.busy_ps, played.host_idle_ps, played.late_ps, played.num_late, played.end_ps


@given(performances(), SHARES, st.integers(0, 60))
@settings(max_examples=4 * settings.default.max_examples)
def test_players_that_part_and_become_one_again_play_as_each_alone_what_is_gone_through_once(
    drawn, share, cut
):
    begun = Counter()
    gone_through = Stretch.at

    def at(position, score, pace):
        begun[position] += 1
        return gone_through(position, score, pace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stretch, "at", at)
        (together,) = played_by([(0, 1, 2)], drawn, share, cut)

    apart = played_by([(0,), (1,), (2,)], drawn, share, cut)
    own = {rank: played for players in apart for rank, played in players.played()}
    found = dict(together.played())
    assert together.are_through
    assert {rank: times(found[rank]) for rank in range(3)} == {rank: times(own[rank]) for rank in range(3)}
    assert found[0] == own[0]
    assert max(begun.values()) == 1


@pytest.mark.parametrize("wait", [HostWait, StreamWait])
def test_players_become_one_again_when_what_told_them_apart_is_over(wait):
    def piece(number, *delays):
        event = 1000 + number
        awaited = HostWait(event, "why") if wait is HostWait else StreamWait(0, event)
        return [Meeting(delays), awaited, Launch(0, 10, "kernel"), END]

    parting, later = piece(0, 0, 9, 0, 9), [*piece(1, 50, 50, 50, 50), *piece(2, 50, 50, 50, 50)]

    (parted,) = played_by([(0, 1, 2, 3)], parting)
    (players,) = played_by([(0, 1, 2, 3)], [*parting, *later])

    assert [player.ranks for player in parted] == [(0, 2), (1, 3)]
    assert len(list(players)) == 1
    ends = {rank: [mark.device_ps for mark in played.marks] for rank, played in players.played()}
    assert ends[1][0] > ends[0][0]
    assert ends[1][1:] == ends[0][1:]


@pytest.mark.parametrize(("share", "slowed"), [(Fraction(0), 32), (Fraction(1, 5), 40)])
def test_a_kernel_that_begins_beside_a_call_is_slowed_down_by_its_share(share, slowed):
    drawn = [
        Launch(0, 10, "first"), Meeting((20,)), Launch(0, 32, "beside it"), Launch(0, 40, "after it")
    ]  # fmt: skip

    (players,) = played_by([(0,)], drawn, share)

    assert players.of(0).played.end_ps == LAUNCH + 10 + slowed + 40


def test_players_that_stand_alike_become_one():
    env = simpy.Environment(initial_time=0)
    (first, own), (other, probe) = alone(env, 0, 1, 2), alone(env, 3)
    for score, players in ((first, own), (other, probe)):
        score.items += [Launch(0, 10, "kernel"), Mark("iteration")]
        players.play()

    own.adopt([probe])
    first.items += [Launch(0, 10, "kernel")]
    first.closed = True
    own.play()

    assert own.of(0) is own.of(3)
    assert own.of(3).ranks == (0, 1, 2, 3)
    assert own.of(3).played.end_ps == LAUNCH + 10 + 10


def test_kernels_take_as_long_as_on_the_slowest_and_copies_and_the_host_no_longer():
    score, players = alone(simpy.Environment(initial_time=0), 0, slowest=Fraction(11, 10))
    kernel, copy = Launch(0, 100, "kernel"), Launch(0, 50, "Memcpy HtoD", "copy")
    score.items += [HostWork(7, "work"), kernel, copy, Mark("end")]
    score.closed = True
    players.play()

    (mark,) = players.of(0).played.marks
    assert (mark.device_ps, mark.busy_ps, mark.lost["slowest rank"]) == (
        7 + LAUNCH + 110 + 50, 110, 10,
    )  # fmt: skip


def played(num_ranks: int, body, host_ps: int = 0) -> list[Played]:
    """Return what is played on GPUs of *num_ranks* on which ``body(gpu, rank, meeting)`` runs."""
    cluster = Cluster(load_network("switch-100g").topology(num_ranks))
    meetings = {}

    def meeting(key, duration_ps):
        delays = dict.fromkeys(range(num_ranks), duration_ps)
        return meetings.setdefault(key, AtTimes(cluster.env, delays))

    def of_rank(rank):
        gpu = Gpu(rank_thread(), Device("gpu", {}, SECOND, kind="gpu", host_overhead_ps=host_ps))
        body(gpu, rank, meeting)
        return gpu.finish()

    return cluster.run(of_rank)


@pytest.mark.parametrize(
    ("kernel", "end", "idle"),
    [(10, 4 + 100 * 10, 4), (3, 100 * 4 + 3, 4 + 99 * 1)],
    ids=["bound by the device", "bound by the host"],
)
def test_a_loop_is_bound_by_the_longer_of_kernel_and_launch(kernel, end, idle):
    def body(gpu, rank, meeting):
        for _ in range(100):
            gpu.launch("mm", kernel)

    (own,) = played(1, body, host_ps=4)

    assert (own.end_ps, own.busy_ps, own.host_idle_ps) == (end, 100 * kernel, idle)


def test_a_call_runs_beside_computation_and_its_rest_is_exposed():
    def body(gpu, rank, meeting):
        gpu.launch("first", 10)
        event = gpu.call("lane", meeting("call", 50), "all_reduce", "world")
        gpu.launch("second", 20)
        event.wait()
        gpu.launch("third", 10)

    for own in played(2, body, host_ps=1):
        assert (own.end_ps, own.busy_ps) == (1 + 10 + 50 + 10, 40)
        assert own.exposed == {Cause("all_reduce", "world"): 30}


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 100), st.lists(st.tuples(st.integers(1, 50), st.integers(1, 80)), min_size=1, max_size=6)
)
def test_buckets_are_reduced_one_after_another_beside_the_backward_pass(forward, buckets):
    def body(gpu, rank, meeting):
        gpu.launch("forward", forward)
        reduced = []
        for number, (gradients, reduction) in enumerate(buckets):
            gpu.launch("backward", gradients)
            reduced.append(gpu.call("group", meeting(number, reduction), "all_reduce", "world"))
        for event in reduced:
            event.wait()
        gpu.launch("optimizer", 7)

    computed = communicated = forward
    for gradients, reduction in buckets:
        computed += gradients
        communicated = max(communicated, computed) + reduction
    assert [own.end_ps for own in played(2, body)] == [max(computed, communicated) + 7] * 2
