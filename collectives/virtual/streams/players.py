"""Players of one score: they begin calls together, and part where a call ends at different times for them.

Those that are through a call at one time and will do the same from then on become one again.  What had
happened to their ranks until then is kept (`collectives.virtual.streams.pasts`).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import simpy

from collectives.virtual.streams.account import Played
from collectives.virtual.streams.flights import ENDS, HOSTS, at
from collectives.virtual.streams.pasts import Past
from collectives.virtual.streams.player import Player
from collectives.virtual.streams.score import Call, Pace, Score
from collectives.virtual.streams.spans import Spans
from collectives.virtual.streams.stretch import Stretch

_MANY = 4096
"""Items of a score that are dropped together."""
_NO_PAST = Past()


class Players:
    """All players of the score of one thread; at first one for all ranks of one pace."""

    def __init__(
        self,
        env: simpy.Environment,
        score: Score,
        paces: Mapping[int, Pace],
        own: int,
        spans: Spans | None = None,
    ) -> None:
        self._env = env
        self._score = score
        self._own = own
        self._players: list[Player] = []
        self._of_rank: dict[int, Player] = {}
        self._pasts: dict[int, Past] = {}
        self._successor: Players | None = None
        self._stretches: OrderedDict[tuple[int, Pace], Stretch] = OrderedDict()
        alike: defaultdict[Pace, list[int]] = defaultdict(list)
        for rank, pace in sorted(paces.items()):
            alike[pace].append(rank)
        for pace, ranks in alike.items():
            player = Player(env, score, ranks, pace, self, spans if own in ranks else None)
            self._players.append(player)
            self._of_rank.update(dict.fromkeys(ranks, player))
        self._through: list[tuple[int, Sequence[int], int]] = []
        self._listeners: list[Callable[[], bool]] = []

    def __iter__(self) -> Iterator[Player]:
        return iter(self._players)

    def of(self, rank: int) -> Player:
        """Return the player of *rank*."""
        return self._of_rank[rank]

    def played(self) -> Iterator[tuple[int, Played]]:
        """Yield each rank, with what is known of it."""
        for player in self._players:
            known: dict[Past | None, Played] = {None: player.played}
            for rank in player.ranks:
                past = self._pasts.get(rank)
                if past not in known:
                    assert past is not None
                    known[past] = past.played(player.played)
                yield rank, known[past]

    @property
    def are_through(self) -> bool:
        """Whether all that will be written is played."""
        return all(player.is_through for player in self._players)

    def play(self) -> None:
        """Play as far as can be known now."""
        for player in self._players:
            player.play()
        self._tell()

    def stop(self, rank: int) -> None:
        """Play no more for *rank*, which is dead."""
        player = self._of_rank[rank]
        if len(player.ranks) > 1:
            player = self._part(player, [rank])
        player.stop()
        self._tell()

    def adopt(self, others: Sequence[Players]) -> None:
        """Let the players of *others* go on by this score, which is equal up to where the others' end."""
        for other in others:
            other._successor = self
            for player in other._players:
                player.follow(self._score, self)
                self._players.append(player)
                self._of_rank.update(dict.fromkeys(player.ranks, player))
            for position, ranks, met_ps in other._through:
                self._note_through(position, ranks, met_ps)
            self._pasts |= other._pasts
            other._players, other._of_rank, other._through = [], {}, []
        self._rejoin(self._players)

    def listen(self, listener: Callable[[], bool]) -> None:
        """Engine: call *listener* whenever something is known that was not, until it returns True."""
        self._listeners.append(listener)

    def begin(self, player: Player, position: int, call: Call) -> None:
        """Engine: the ranks of *player* come to *call*, which stands at *position* of the score, now."""
        call.call.begin(player.ranks, partial(self._note_through, position))

    def stretch(self, position: int, pace: Pace) -> Stretch:
        """Return what a host of *pace* issues on end from *position* on, the same for all players."""
        if len(self._players) == 1:
            return Stretch.at(position, self._score, pace)
        found = self._stretches.get((position, pace))
        if found is None:
            found = self._stretches[position, pace] = Stretch.at(position, self._score, pace)
        return found

    def _note_through(self, position: int, ranks: Sequence[int], met_ps: int) -> None:
        """Engine: *ranks* are through the call at *position*; go on at the end of this instant."""
        if self._successor is not None:
            self._successor._note_through(position, ranks, met_ps)
            return
        if not self._through:
            at(self._env, int(self._env.now), self._go_on, ENDS)
        self._through.append((position, ranks, met_ps))

    def _go_on(self) -> None:
        """Let the ranks go on that are through something at this instant."""
        ended, self._through = self._through, []
        by_player: defaultdict[Player, list[int]] = defaultdict(list)
        by_rank: defaultdict[int, list[int]] = defaultdict(list)
        met: dict[tuple[int, int], int] = {}
        for position, ranks, met_ps in ended:
            player = self._of_rank[int(ranks[0])]
            if player.ranks == ranks:
                by_player[player].append(position)
                met[position, player.ranks[0]] = met_ps
                continue
            for rank in map(int, ranks):
                by_player.setdefault(self._of_rank[rank], [])
                by_rank[rank].append(position)
                met[position, rank] = met_ps

        gone_on: list[Player] = []
        for player, all_through in by_player.items():
            alike: dict[tuple[int, ...], list[int]] = {}
            first = player.ranks[0]
            if by_rank and any(rank in by_rank for rank in player.ranks):
                for rank in player.ranks:
                    positions = tuple(sorted(all_through + by_rank.get(rank, [])))
                    alike.setdefault(positions, []).append(rank)
            else:
                alike[tuple(sorted(all_through))] = list(player.ranks)
            going_on: list[tuple[Player, tuple[int, ...]]] = []
            for number, (positions, some) in enumerate(alike.items()):
                going_on.append((player if number == 0 else self._part(player, some), positions))
            for each, positions in going_on:
                for position in positions:
                    own = position, each.ranks[0]
                    each.end(position, met[own if own in met else (position, first)])
                each.play()
                gone_on.append(each)
        self._rejoin(gone_on)
        self._drop()
        self._tell()

    def _part(self, player: Player, ranks: Sequence[int]) -> Player:
        """Return a player of *ranks*, which part from the others; spans stay with the thread's rank."""
        other = player.split(ranks)
        if self._own in other.ranks:
            player.account.spans, other.account.spans = None, player.account.spans
        self._players.append(other)
        self._of_rank.update(dict.fromkeys(other.ranks, other))
        return other

    def _rejoin(self, players: Iterable[Player]) -> None:
        """Let one player go on for those that do the same from now on."""
        at_one_place: defaultdict[tuple[int, ...], list[Player]] = defaultdict(list)
        for player in players:
            at_one_place[player.place].append(player)
        joined: set[Player] = set()
        for candidates in at_one_place.values():
            if len(candidates) < 2:
                continue
            alike: list[tuple[tuple[object, ...], list[Player]]] = []
            for player in candidates:
                future = player.future()
                same = next((own for its_future, own in alike if its_future == future), None)
                if same is None:
                    alike.append((future, [player]))
                elif player is self._of_rank.get(self._own):
                    same.insert(0, player)
                else:
                    same.append(player)
            for _, (first, *others) in alike:
                self._join(first, others)
                joined.update(others)
        if joined:
            self._players = [player for player in self._players if player not in joined]

    def _join(self, player: Player, others: Sequence[Player]) -> None:
        """Let *player* go on for the ranks of *others*, too, and keep what tells these ranks from its own."""
        pasts: dict[Past, Past] = {}
        for other in others:
            known: dict[Past, Past] = {}
            for rank in other.ranks:
                before = self._pasts.get(rank, _NO_PAST)
                if before not in known:
                    past = before.joined(other.played, player.played)
                    known[before] = pasts.setdefault(past, past)
                self._pasts[rank] = known[before]
            self._of_rank.update(dict.fromkeys(other.ranks, player))
        if others:
            player.join(others)

    def _drop(self) -> None:
        """Forget of the score what all have issued."""
        until = min(player.position for player in self._players)
        while self._stretches and next(iter(self._stretches))[0] < until:
            self._stretches.popitem(last=False)
        if until - self._score.dropped >= _MANY:
            self._score.drop(until)

    def _tell(self) -> None:
        self._listeners = [listener for listener in self._listeners if not listener()]


def first_host(players: Players, env: simpy.Environment) -> simpy.Event:
    """Return an event that fires at the time of the first host that has issued the whole score."""
    reached = simpy.Event(env)
    seen: set[int] = set()

    def look() -> bool:
        for player in players:
            if player.is_dry and id(player) not in seen:
                seen.add(id(player))
                at(env, player.host_ps, reach, HOSTS)
        return reached.triggered

    def reach() -> None:
        if not reached.triggered:
            reached.succeed()

    players.listen(look)
    look()
    return reached
