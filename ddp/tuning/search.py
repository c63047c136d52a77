"""Search for the buckets, strategy and algorithm with which a training step is predicted to be shortest.

Every figure is that of `simulate_step`: there is no second formula.  The search is deterministic.

1. The default: torch's buckets (1 MiB, then 25 MiB) as its DDP launches them; and 25 MiB for all.
2. One cap, for each algorithm and strategy: all distinct divisions where they are few, else a grid over
   the number of buckets and bisection around its best; of many algorithms and strategies the most
   promising ones.
3. A list of caps: all divisions of the gradients into runs where they are few, for each algorithm and
   strategy.  Else, for the best algorithm and strategy and for torch's, optimal merging by a line of costs
   (`ddp.reduction.strategies.mg_wfbp`), then coordinate descent from the best division found: merge two
   buckets, split one, move a boundary.  Not where gradients are of several
   dtypes, or one is empty.

The default is among what is compared, so what is found is never worse in the model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations

from collectives.errors import NotSupportedError
from collectives.timing import Assumptions, Engine, simulate
from ddp import errors
from ddp.profiles import Profile
from ddp.reduction.bucketing import DEFAULT_CAP_MB, MIB
from ddp.reduction.overlap import resolve_strategy
from ddp.reduction.strategies.mg_wfbp import merge
from ddp.reduction.strategies.plan import Layout, LinearCost, PassTiming
from ddp.step.simulated_step import simulate_step
from ddp.tuning.bucket_caps import CapRange, caps_for, distinct_caps
from ddp.tuning.trials import StepOptions, Trial, Tuning, best_of, rank, shortest
from sim.topology import Topology

TORCH_STRATEGY = "wait_free"
GRID_POINTS = 24
MAX_ALGORITHMS = 3
LINE_FROM = 256  # the line of costs goes from so small a part of all gradients to all of them


class Search:
    """Tries options on one profile and one network; `result` is the best so far at any time.

    Args:
        profile: what every rank computes.
        topology: the network.
        algorithms: of all-reduce, as `simulate_step` takes them; torch's DDP is taken to run the first.
        strategies: overlap strategies; torch's, ``wait_free``, is tried in any case.
        max_exact: so many divisions are all tried; more are searched.
        max_descent: steps that one coordinate descent may simulate.
        max_pairs: of more algorithms with strategies than this, where divisions are many, only the most
            promising are searched.
        engine: see `collectives.timing.simulation.simulate`.
        assumptions: what is counted; None: links alone.
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
        max_pairs: int = 6,
        engine: Engine = "auto",
        assumptions: Assumptions | None = None,
        advance: Callable[[Trial], None] = lambda _: None,
    ) -> None:
        self._profile = profile
        self._topology = topology
        self._torch_pair = (algorithms[0], TORCH_STRATEGY)
        chosen = [(algorithm, strategy) for strategy in strategies for algorithm in algorithms]
        self._pairs = list(dict.fromkeys([self._torch_pair, *chosen]))
        self._max_exact = max_exact
        self._max_descent = max_descent
        self._max_pairs = max_pairs
        self._engine: Engine = engine
        self._assumptions = Assumptions.ideal() if assumptions is None else assumptions
        self._advance = advance
        self._trials: dict[StepOptions, Trial] = {}
        self._searches: dict[tuple[str, str], str] = {}
        self._refused: list[tuple[str, str, str]] = []
        self._deaf: set[tuple[str, str]] = set()  # pairs that make their own buckets, whatever the caps
        self._complete = False

        order = profile.ready_order()
        gradients = profile.gradients
        self._ranges = distinct_caps([g.nbytes for g in gradients], [g.dtype for g in gradients], order)
        plain = len({g.dtype for g in gradients}) == 1 and all(g.nbytes for g in gradients)
        self._sizes = [gradients[i].nbytes for i in order] if plain else []

    @property
    def started(self) -> bool:
        """Whether there is a result: the default has been simulated."""
        return bool(self._trials)

    def run(self) -> Tuning:
        """Search and return what was found.

        Raises:
            NotSupportedError: torch's own buckets, with the first algorithm, do not go on this network.
            DDPError, CollectiveError, SimulationError: see `simulate_step`.
        """
        self._try(StepOptions(*self._torch_pair))
        self._try(StepOptions(*self._torch_pair, DEFAULT_CAP_MB))
        self._searches[self._torch_pair] = self._search_one_cap(self._torch_pair)
        pairs = self._pairs[1:]
        if len(self._ranges) > self._max_exact and len(pairs) > self._max_pairs:
            pairs = self._promising(pairs)
        for pair in pairs:
            if self._is_possible(pair):
                self._searches[pair] = self._search_one_cap(pair)
        if self._sizes and 2 ** (len(self._sizes) - 1) <= self._max_exact:
            for pair in list(self._searches):
                if pair not in self._deaf:
                    self._searches[pair] += "; " + self._try_all_lists(pair)
        elif self._sizes:
            best = best_of(t for t in self._trials.values() if t.options.pair not in self._deaf)
            for pair in dict.fromkeys([best.options.pair, self._torch_pair]):
                self._searches[pair] += "; " + self._descend(pair)
        self._complete = True
        return self.result()

    def result(self) -> Tuning:
        """Return the best so far, once it has `started`."""
        trials = tuple(self._trials.values())
        return Tuning(
            default=trials[0],
            torch=shortest(trials, *self._torch_pair),
            best=best_of(trials),
            trials=trials,
            searches=dict(self._searches),
            refused=tuple(self._refused),
            complete=self._complete,
            ranges=self._ranges,
        )

    def _try(self, options: StepOptions) -> Trial:
        if options not in self._trials:
            step = simulate_step(
                self._profile,
                topology=self._topology,
                strategy=options.strategy,
                bucket_cap_mb=options.bucket_cap_mb,
                bucket_cap_mb_list=options.bucket_cap_mb_list,
                algorithm=options.algorithm,
                engine=self._engine,
                assumptions=self._assumptions,
            )
            sizes = {run.bucket: run.nbytes for run in step.buckets}
            nbytes = tuple(sizes[bucket] for bucket in sorted(sizes))
            self._trials[options] = Trial(
                options, step.time_ps, step.time_ps - step.compute_ps, nbytes, step.engine
            )
            self._advance(self._trials[options])
        return self._trials[options]

    def _is_possible(self, pair: tuple[str, str]) -> bool:
        """Try *pair* with the default; note why it is refused if it is."""
        try:
            _check_comparable(pair[1])
            self._try(StepOptions(*pair))
        except (NotSupportedError, errors.NotSupportedError) as error:
            self._refused.append((*pair, str(error)))
            return False
        return True

    def _promising(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the strategies that do best on the algorithms that do best with torch's."""
        algorithms = dict.fromkeys(algorithm for algorithm, _ in pairs)
        best = self._screened([(algorithm, TORCH_STRATEGY) for algorithm in algorithms])[:MAX_ALGORITHMS]
        chosen = {algorithm for algorithm, _ in [self._torch_pair, *best]}
        return self._screened([*best, *(pair for pair in pairs if pair[0] in chosen)])[: self._max_pairs]

    def _screened(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of *pairs* that are possible, the best with the default or torch's best cap first."""
        cap = self.result().one_cap().options.bucket_cap_mb
        possible = [pair for pair in dict.fromkeys(pairs) if self._is_possible(pair)]
        for pair in possible:
            self._searches.setdefault(pair, "only with torch's default and the cap that is torch's best")
            self._try(StepOptions(*pair, cap))
        return sorted(possible, key=lambda pair: rank(shortest(self._trials.values(), *pair)))

    def _search_one_cap(self, pair: tuple[str, str]) -> str:
        ranges = self._ranges

        def time_of(index: int) -> tuple[int, int]:
            return self._try(StepOptions(*pair, ranges[index].cap_mb)).time_ps, -index

        default, largest = self._try(StepOptions(*pair)), self._try(StepOptions(*pair, ranges[-1].cap_mb))
        if default.nbytes == largest.nbytes and (
            len(self._trials[StepOptions(*self._torch_pair)].nbytes) > len(ranges[-1].nbytes)
            or (len(ranges) > 1 and self._try(StepOptions(*pair, ranges[0].cap_mb)).nbytes == default.nbytes)
        ):
            self._deaf.add(pair)
            return "the strategy makes its own buckets, whatever the caps"
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
        ranked = [self._cuts_of(trial) for trial in sorted(self._trials.values(), key=rank)]
        starts = [self._merged(pair[0]), *[cuts for cuts in ranked if cuts is not None][:1]]
        cuts = min(starts, key=lambda start: rank(self._try_cuts(pair, start)))
        best, simulated, moved = self._try_cuts(pair, cuts), 0, True
        while moved:
            moved = False
            for neighbour in self._neighbours(cuts):
                if simulated == self._max_descent:
                    return f"list of caps: optimal merging, then descent, stopped after {simulated} steps"
                trial = self._try_cuts(pair, neighbour)
                simulated += 1
                if trial.time_ps < best.time_ps:
                    best, cuts, moved = trial, neighbour, True
                    break
        return f"list of caps: optimal merging, then descent, {simulated} steps to a local minimum"

    def _merged(self, algorithm: str) -> tuple[int, ...]:
        """Return the division with which communication ends first, by a line of costs of *algorithm*."""
        unit = 8 * self._topology.num_ranks
        points = []
        for share in (LINE_FROM, 1):
            nbytes = -(-self._profile.nbytes // (share * unit)) * unit
            run = simulate(
                algorithm,
                topology=self._topology,
                nbytes=nbytes,
                engine=self._engine,
                assumptions=self._assumptions,
            )
            points.append((nbytes, run.time_ps))
        cost = LinearCost.through(*points) if points[0][0] < points[1][0] else LinearCost(points[1][1], 0)
        gradients = self._profile.gradients
        layout = Layout([g.nbytes for g in gradients], [g.dtype for g in gradients], ())
        timing = PassTiming(tuple(g.ready_ps for g in gradients), cost)
        buckets = merge(self._profile.ready_order(), layout, timing)
        return tuple(accumulate(len(bucket) for bucket in buckets))[:-1]

    def _try_cuts(self, pair: tuple[str, str], cuts: Sequence[int]) -> Trial:
        return self._try(StepOptions(*pair, None, caps_for(self._sizes, cuts)))

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


def _check_comparable(strategy: str) -> None:
    """Refuse strategies whose step is another one."""
    own = resolve_strategy(strategy)
    if own.num_passes > 1:
        raise errors.NotSupportedError(
            f"a step of {own.num_passes} passes does more work than one; compare it with testbed scale"
        )


def _grid(ranges: Sequence[CapRange]) -> list[int]:
    """Return divisions whose numbers of buckets spread evenly on a logarithmic scale, and that of 25 MiB."""
    counts = [-len(own.nbytes) for own in ranges]
    most, least = -counts[0], -counts[-1]
    wanted = [most * (least / most) ** (place / (GRID_POINTS - 1)) for place in range(GRID_POINTS)]
    default = bisect_left(ranges, int(DEFAULT_CAP_MB * MIB), key=lambda own: own.high or 2**63)
    spread = {min(bisect_left(counts, -count), len(ranges) - 1) for count in wanted}
    return sorted(spread | {default, len(ranges) - 1})
