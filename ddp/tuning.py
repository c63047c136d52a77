"""Finds the buckets, the strategy and the algorithm with which a training step is predicted to be shortest.

Every figure is that of `simulate_step`: there is no second formula.  The search is deterministic.

1. The default: torch's buckets (1 MiB, then 25 MiB) as its DDP launches them.
2. One cap, for each algorithm and strategy: all distinct divisions where they are few, else a grid over
   the number of buckets and bisection around its best.
3. A list of caps: all divisions of the gradients into runs where they are few, for each algorithm and
   strategy; else coordinate descent from the best division found (merge two buckets, split one, move a
   boundary), for the best algorithm and strategy and for torch's.  Not where gradients are of several
   dtypes, or one is empty.

The default is among what is compared, so what is found is never worse in the model.  Where a search is
not exhaustive, better caps may exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

from collectives.errors import NotSupportedError
from collectives.simulation import Engine
from ddp import errors
from ddp.caps import CapRange, caps_for, distinct_caps
from ddp.drivers.simulated import simulate_step
from ddp.profile import Profile
from sim.topology import Topology
from sim.units import to_seconds

TORCH_STRATEGY = "wait_free"
GRID_POINTS = 24


@dataclass(frozen=True, slots=True)
class Setting:
    """What is chosen; without caps the buckets are torch's default."""

    algorithm: str
    strategy: str
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and its simulated step.

    Attributes:
        setting: what was chosen.
        time_ps: length of the step.
        exposed_ps: of it, communication that the computation waits for.
        nbytes: size of each bucket, in the order in which they are reduced.
        engine: of the simulation.
    """

    setting: Setting
    time_ps: int
    exposed_ps: int
    nbytes: tuple[int, ...]
    engine: str

    @property
    def seconds(self) -> float:
        """Length of the step."""
        return to_seconds(self.time_ps)

    @property
    def exposed_seconds(self) -> float:
        """Communication that the computation waits for."""
        return to_seconds(self.exposed_ps)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was found.

    Attributes:
        default: torch's DDP as it comes.
        torch: the best that torch's own DDP can be told: caps.
        best: of all.
        trials: everything that was simulated, in that order.
        searches: how each algorithm and strategy was searched.
        refused: algorithm, strategy and why the two do not go together here.
        complete: false where the search was interrupted.
    """

    default: Trial
    torch: Trial
    best: Trial
    trials: tuple[Trial, ...]
    searches: dict[tuple[str, str], str]
    refused: tuple[tuple[str, str, str], ...]
    complete: bool

    def curve(self, algorithm: str, strategy: str) -> list[tuple[float, Trial]]:
        """Return one cap for all buckets, in MiB, and what it gave, from small caps to large."""
        return sorted(
            (
                (trial.setting.bucket_cap_mb, trial)
                for trial in self.trials
                if (trial.setting.algorithm, trial.setting.strategy) == (algorithm, strategy)
                and trial.setting.bucket_cap_mb is not None
            ),
            key=lambda point: point[0],
        )

    def pairs(self) -> list[Trial]:
        """Return the best trial of each algorithm and strategy, the shortest step first."""
        chosen = {(t.setting.algorithm, t.setting.strategy) for t in self.trials}
        return sorted((_shortest(self.trials, *pair) for pair in chosen), key=_rank)

    def one_cap(self) -> Trial:
        """Return the best that torch's own DDP can be told without a list of caps."""
        own = self.torch.setting
        return _shortest(
            [trial for trial in self.trials if not trial.setting.bucket_cap_mb_list],
            own.algorithm,
            own.strategy,
        )

    def gain(self, trial: Trial) -> float:
        """Return the part of the default's step that *trial* saves."""
        return 1 - trial.time_ps / self.default.time_ps if self.default.time_ps else 0.0


class Search:
    """Tries settings on one profile and one network; `result` is the best so far at any time.

    Args:
        profile: what every rank computes.
        topology: the network.
        algorithms: of all-reduce, as `simulate_step` takes them; torch's DDP is taken to run the first.
        strategies: overlap strategies; torch's, ``wait_free``, is tried in any case.
        max_exact: so many divisions are all tried; more are searched.
        max_descent: steps that one coordinate descent may simulate.
        engine: see `collectives.simulation.simulate`.
        advance: is given every trial when it has been simulated.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        topology: Topology,
        algorithms: Sequence[str] = ("ring",),
        strategies: Sequence[str] = (TORCH_STRATEGY,),
        max_exact: int = 128,
        max_descent: int = 60,
        engine: Engine = "auto",
        advance: Callable[[Trial], None] = lambda _: None,
    ) -> None:
        self._profile = profile
        self._topology = topology
        self._torch_pair = (algorithms[0], TORCH_STRATEGY)
        chosen = [(algorithm, strategy) for strategy in strategies for algorithm in algorithms]
        self._pairs = list(dict.fromkeys([self._torch_pair, *chosen]))
        self._max_exact = max_exact
        self._max_descent = max_descent
        self._engine: Engine = engine
        self._advance = advance
        self._trials: dict[Setting, Trial] = {}
        self._searches: dict[tuple[str, str], str] = {}
        self._refused: list[tuple[str, str, str]] = []
        self._complete = False
        order = profile.ready_order()
        gradients = profile.gradients
        self._ranges = distinct_caps([g.nbytes for g in gradients], [g.dtype for g in gradients], order)
        plain = len({g.dtype for g in gradients}) == 1 and all(g.nbytes for g in gradients)
        self._sizes = [gradients[i].nbytes for i in order] if plain else []

    @property
    def started(self) -> bool:
        """Whether the default has been simulated, so that there is a result."""
        return bool(self._trials)

    def run(self) -> Tuning:
        """Search and return what was found.

        Raises:
            NotSupportedError: torch's setting, with the first algorithm, is not possible on this network.
            DDPError, CollectiveError, SimulationError: see `simulate_step`.
        """
        for pair in list(self._pairs):
            try:
                self._try(Setting(*pair))
            except (NotSupportedError, errors.NotSupportedError) as error:
                if pair == self._torch_pair:
                    raise
                self._refused.append((*pair, str(error)))
                self._pairs.remove(pair)
        for pair in self._pairs:
            self._searches[pair] = self._search_one_cap(pair)
        if self._sizes and 2 ** (len(self._sizes) - 1) <= self._max_exact:
            for pair in self._pairs:
                self._searches[pair] += "; " + self._try_all_lists(pair)
        elif self._sizes:
            best = _best(self._trials.values()).setting
            for pair in dict.fromkeys([(best.algorithm, best.strategy), self._torch_pair]):
                self._searches[pair] += "; " + self._descend(pair)
        self._complete = True
        return self.result()

    def result(self) -> Tuning:
        """Return the best so far, once it has `started`."""
        trials = tuple(self._trials.values())
        return Tuning(
            default=trials[0],
            torch=_shortest(trials, *self._torch_pair),
            best=_best(trials),
            trials=trials,
            searches=dict(self._searches),
            refused=tuple(self._refused),
            complete=self._complete,
        )

    def _try(self, setting: Setting) -> Trial:
        if setting not in self._trials:
            step = simulate_step(
                self._profile,
                topology=self._topology,
                strategy=setting.strategy,
                bucket_cap_mb=setting.bucket_cap_mb,
                bucket_cap_mb_list=setting.bucket_cap_mb_list,
                algorithm=setting.algorithm,
                engine=self._engine,
            )
            nbytes = tuple(bucket.nbytes for bucket in step.buckets)
            self._trials[setting] = Trial(
                setting, step.time_ps, step.time_ps - step.compute_ps, nbytes, step.engine
            )
            self._advance(self._trials[setting])
        return self._trials[setting]

    def _search_one_cap(self, pair: tuple[str, str]) -> str:
        ranges = self._ranges

        def time_of(index: int) -> tuple[int, int]:
            return self._try(Setting(*pair, ranges[index].cap_mb)).time_ps, -index

        ends = [self._try(Setting(*pair, ranges[index].cap_mb)) for index in (0, -1)]
        if len(ranges) > 1 and ends[0].nbytes == ends[1].nbytes:
            return "the strategy decides the buckets, whatever the cap"
        if len(ranges) <= self._max_exact:
            for index in range(len(ranges)):
                time_of(index)
            return f"one cap: all {len(ranges)} distinct divisions"
        tried = {index: time_of(index) for index in _grid(ranges)}
        while True:
            best = min(tried, key=lambda index: tried[index])
            known = sorted(tried)
            place = known.index(best)
            between = {(best + near) // 2 for near in known[max(place - 1, 0) : place + 2]}
            fresh = {index for index in between if index not in tried}
            if not fresh:
                break
            tried |= {index: time_of(index) for index in sorted(fresh)}
        return (
            f"one cap: {len(tried)} of {len(ranges)} distinct divisions, a grid and bisection around its best"
        )

    def _try_all_lists(self, pair: tuple[str, str]) -> str:
        positions = range(1, len(self._sizes))
        for count in range(len(self._sizes)):
            for cuts in combinations(positions, count):
                self._try_cuts(pair, cuts)
        return f"list of caps: all {2 ** len(positions)} divisions"

    def _descend(self, pair: tuple[str, str]) -> str:
        """Improve the best division known, one bucket at a time, the last to be reduced first."""
        starts = [
            cuts
            for trial in sorted(self._trials.values(), key=_rank)
            if (cuts := self._cuts_of(trial)) is not None
        ]
        if not starts:
            return "list of caps: not searched, as no division into runs is known"
        cuts = starts[0]
        best, simulated, moved = self._try_cuts(pair, cuts), 0, True
        while moved:
            moved = False
            for neighbour in self._neighbours(cuts):
                if simulated == self._max_descent:
                    return f"list of caps: coordinate descent, stopped after {simulated} steps"
                trial = self._try_cuts(pair, neighbour)
                simulated += 1
                if trial.time_ps < best.time_ps:
                    best, cuts, moved = trial, neighbour, True
                    break
        return f"list of caps: coordinate descent, {simulated} steps to a local minimum"

    def _try_cuts(self, pair: tuple[str, str], cuts: Sequence[int]) -> Trial:
        return self._try(Setting(*pair, None, caps_for(self._sizes, cuts)))

    def _cuts_of(self, trial: Trial) -> tuple[int, ...] | None:
        """Return where *trial* divides the gradients, or None if not into runs in ready order."""
        ends = {total: position for position, total in enumerate(accumulate(self._sizes), start=1)}
        cuts = [ends.get(total) for total in accumulate(size for size in trial.nbytes if size)]
        if None in cuts or cuts[-1] != len(self._sizes):
            return None
        return tuple(cut for cut in cuts[:-1] if cut is not None)

    def _neighbours(self, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield divisions that differ from *cuts* in one or two buckets."""
        bounds = (0, *cuts, len(self._sizes))
        for place in reversed(range(len(bounds) - 1)):
            begin, end = bounds[place], bounds[place + 1]
            if place:
                yield tuple(cut for cut in cuts if cut != begin)
                others = set(cuts) - {begin}
                for moved in dict.fromkeys(
                    ((begin + end) // 2, (bounds[place - 1] + begin) // 2, begin + 1, begin - 1)
                ):
                    if bounds[place - 1] < moved < end and moved != begin:
                        yield tuple(sorted({*others, moved}))
            if end - begin > 1:
                yield tuple(sorted({*cuts, self._middle(begin, end)}))

    def _middle(self, begin: int, end: int) -> int:
        """Return the position that halves the bytes from *begin* to *end*, as far as gradients allow."""
        sums = list(accumulate(self._sizes[begin:end]))
        return begin + min(max(bisect_left(sums, sums[-1] / 2) + 1, 1), end - begin - 1)


def _grid(ranges: Sequence[CapRange]) -> list[int]:
    """Return indices of divisions whose numbers of buckets are evenly spread on a logarithmic scale."""
    counts = [-len(own.nbytes) for own in ranges]
    most, least = -counts[0], -counts[-1]
    wanted = [most * (least / most) ** (place / (GRID_POINTS - 1)) for place in range(GRID_POINTS)]
    return sorted({min(bisect_left(counts, -count), len(ranges) - 1) for count in wanted} | {len(ranges) - 1})


def _rank(trial: Trial) -> tuple[int, int, int, int]:
    """Sort key: the shorter step, then what is simpler to say, then fewer buckets."""
    own = trial.setting
    return trial.time_ps, len(own.bucket_cap_mb_list), own.bucket_cap_mb is not None, len(trial.nbytes)


def _best(trials: Iterable[Trial]) -> Trial:
    return min(trials, key=_rank)


def _shortest(trials: Sequence[Trial], algorithm: str, strategy: str) -> Trial:
    own = [t for t in trials if (t.setting.algorithm, t.setting.strategy) == (algorithm, strategy)]
    return _best(own)
