"""Tests of distributed code: a function as so many ranks in virtual time, in one process.

    from testbed.testing import on_ranks

    @on_ranks(4)
    def test_the_sum_is_that_of_all_ranks(rank):
        dist.init_process_group()
        total = torch.tensor([float(rank)])
        dist.all_reduce(total)
        assert total == 6

The fixture ``virtual_cluster`` of our plugin gives the same to a test that wants to look
at times, or at a run that fails.  Nothing here imports torch before tests on ranks are collected.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import KW_ONLY, InitVar, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, cast

import _collective_testbed_entry
from _collective_testbed_entry import ON_RANKS, require

if TYPE_CHECKING:
    from collectives.catalogue.selectors import Choice
    from collectives.virtual import VirtualRun
    from collectives.virtual.computation import ComputeModel
    from collectives.virtual.exploration.cluster import Parting
    from collectives.virtual.faults import VirtualCondition
    from sim.cluster import Order
    from sim.errors import RankError
    from sim.topology import Topology
    from sim.trace import Trace

TRACES: ContextVar[list[Trace] | None] = ContextVar("TRACES", default=None)
"""Where the plugin keeps what runs of a test record; None: nothing is recorded."""


class MistakeWarning(UserWarning):
    """Ranks make a mistake that stops nothing and spoils results, such as data that overlap."""


class DependsOnOrderError(AssertionError):
    """What ranks return, print or hold in the end differs between two orders of events; shows both."""


Orders: TypeAlias = Literal["all"] | None
"""Orders of events in which a program runs: every one that ranks can tell apart, or one."""


class DependsOnTimeError(AssertionError):
    """What ranks return differs between runs in which only time and order do; names the seed."""


class ReplicasPartError(AssertionError):
    """Ranks that should hold the same parameters do not, or none hold the same; names step and parameter."""


class RacesError(AssertionError):
    """Ranks do something to one tensor on two streams of a GPU, and nothing orders it; names both lines."""


Checks: TypeAlias = Literal["replicas", "none"] | None
"""What is checked: that replicas hold the same bits after every step; none: not even streams of GPUs."""

P = ParamSpec("P")
T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., None])

Seeds: TypeAlias = int | Sequence[int] | None
"""How many seeds, from 0, or which."""


@dataclass
class VirtualCluster:
    """Ranks on a network in virtual time, on which functions and scripts run.

    Args:
        ranks: how many; None: as many as *network* has, where it says so.  In pytest, None of *ranks*,
            *network*, *compute* and *seeds* is what ``[tool.testbed]`` of the ``pyproject.toml`` says.
        network: the name of a preset or the path of a network file, which bring along what a real run there
            would use; or a topology, which knows its links alone; None: the links of ``switch-100g``.
        compute: how computation takes time: as ``testbed run --compute`` takes it, such as ``"h100"``, a
            model, or picoseconds per kind of work; None: it takes none.
        conditions: slow and dead ranks, late messages, links that change or fail.
        algorithm: of the collectives, where the code chooses none; None: that of a real run, on links alone
            ``ring``.
        faults: an older name of *conditions*.
        seeds: how many times a function runs again, each time in an order of events and with faults that are
            drawn from a seed: slow ranks, late messages, slow links.  None may change what it returns.  Or
            the seeds themselves.
        orders: ``"all"``: a program runs in every order of events that any speed of ranks and messages could
            bring about and ranks can tell apart, once in each; so neither *compute* nor *conditions* can be
            given.  It must come to the same in all.  See `collectives.virtual.exploration`.
        check: ``"replicas"``: ranks that hold the same parameters hold the same bits after every step.  Where
            ranks compute on a GPU, what they do on its streams is checked for races; ``"none"``: it is not.
        lenient: carry out by value what the backend that the code names refuses or gets wrong.
    """

    ranks: int | None = None
    network: Topology | str | os.PathLike[str] | None = None
    _: KW_ONLY
    compute: ComputeModel | Mapping[str, int] | str | None = None
    conditions: Sequence[VirtualCondition] = ()
    algorithm: Choice | None = None
    faults: InitVar[Sequence[VirtualCondition]] = ()
    seeds: Seeds = None
    orders: Orders = None
    check: Checks = None
    lenient: bool = False

    def __post_init__(self, faults: Sequence[VirtualCondition]) -> None:
        self.conditions = (*self.conditions, *faults)
        if self.check not in (None, "replicas", "none"):
            raise ValueError(f"check: expected 'replicas', 'none' or None, got {self.check!r}")
        if self.check == "replicas" and self.orders is not None:
            raise ValueError("check: orders='all' compares what programs come to; give one of the two")
        if self.orders not in (None, "all"):
            raise ValueError(f"orders: expected 'all' or None, got {self.orders!r}")
        if self.orders is not None and (self.compute is not None or self.conditions):
            raise ValueError("orders='all': nothing takes time, so leave out compute= and conditions=")
        if self.orders is not None and self.seeds is not None:
            raise ValueError("seeds: every order holds those of all seeds; give one of seeds= and orders=")
        _seeds(self.seeds)

    def run(self, fn_or_script: Callable[..., Any] | str | os.PathLike[str], *args: Any) -> VirtualRun:
        """Run ``fn(rank, *args)``, or a script with the arguments *args*, on every rank.

        Mistakes that stop nothing become warnings, of class `MistakeWarning`.

        Raises:
            InTheWayError: a file of the user's is found under the name of a package of ours.
            Exception: what a rank has raised, itself; a note says which rank, and what the others did.
            DeadlockError: ranks wait for what will never happen; says who waits where, and for whom.
            SimulationError: messages were lost with a link, or the cluster cannot be as it is asked for.
            DependsOnOrderError: in another order of events it comes to something else.
            OrdersError: not all orders can be run; says why.
            DependsOnTimeError: under a seed a rank returns something else.
            ReplicasPartError: a check of replicas was asked for, and they part.
            RacesError: nothing orders what ranks do on the streams of their GPUs.
        """
        __tracebackhide__ = True
        from testbed.errors import TORCH, UsageError, has_torch, how_to_install

        require("collectives", "sim", "testbed")
        if not has_torch():
            raise UsageError(how_to_install(TORCH, "torch"))
        from collectives.virtual.notices import Notices
        from sim.errors import RankError, SimulationError

        if callable(fn_or_script):
            called: Any = lambda rank: fn_or_script(rank, *args)  # noqa: E731
            argv: tuple[str, ...] = ()
        else:
            called, argv = fn_or_script, tuple(map(str, args))
        failure: BaseException
        cluster = self._as_the_project_says()
        try:
            if cluster.orders is not None:
                return cluster._in_every_order(called, argv)
            outcome = cluster._once(called, argv, cluster.conditions, None)
            for seed in _seeds(cluster.seeds):
                cluster._under(seed, called, argv, outcome)
        except RankError as error:
            failure = _of_rank(error)
        except SimulationError as error:
            failure = error.with_traceback(None)
        else:
            for text in Notices.of(outcome.cluster).mistakes:
                warnings.warn(text, MistakeWarning, stacklevel=2)
            return outcome
        raise failure

    def _as_the_project_says(self) -> VirtualCluster:
        """Return this cluster with what the project's file says where nothing is given."""
        if _collective_testbed_entry.project_folder is None:
            return self
        from sim.topology import Topology
        from testbed.options.project import Project

        cluster = copy(self)
        said = Project.at(_collective_testbed_entry.project_folder).of_tests(
            in_every_order=self.orders is not None, has_ranks=isinstance(self.network, Topology)
        )
        for name, value in said.items():
            if getattr(cluster, name) is None:
                setattr(cluster, name, value)
        return cluster

    def _once(
        self, called: Any, argv: Sequence[str], conditions: Sequence[VirtualCondition], order: Order | None
    ) -> VirtualRun:
        __tracebackhide__ = True
        from collectives.virtual import run
        from collectives.virtual.diagnosis.races import Races
        from collectives.virtual.parameters.record import ParameterRecord
        from collectives.virtual.parameters.replicas import check_replicas
        from collectives.virtual.streams.gpus import gpu_of
        from sim.trace import Trace

        model = self._model()
        record = ParameterRecord() if self.check == "replicas" else None
        races = None if self.check == "none" or gpu_of(model) is None else Races()
        traces = TRACES.get()
        trace = None if traces is None else Trace()
        if traces is not None and trace is not None:
            traces.append(trace)
        outcome = run(
            called,
            self.ranks,
            self.network,
            compute=model,
            conditions=conditions,
            algorithm=self.algorithm,
            order=order,
            argv=argv,
            trace=trace,
            parameters=record,
            lenient=self.lenient,
            races=races,
        )
        if races is not None and races.texts:
            raise RacesError(races.text)
        if record is not None and not (found := check_replicas(record)).holds:
            raise ReplicasPartError(found.text)
        return outcome

    def _under(self, seed: int, called: Any, argv: Sequence[str], calm: VirtualRun) -> None:
        """Run once more under *seed*; whatever is wrong then names it.

        Raises:
            DependsOnTimeError: a rank returns something else than in the *calm* run.
            RankError, SimulationError: as in any run.
        """
        __tracebackhide__ = True
        from sim.errors import SimulationError
        from testbed.fuzzing.faults import draw_of_time, parted

        conditions, order = draw_of_time(seed, calm, self.conditions, is_timed=self.compute is not None)
        about = f"seed {seed}: conditions={list(conditions)}, order={order}"
        try:
            outcome = self._once(called, argv, conditions, order)
        except SimulationError as error:
            failed = error if error.__cause__ is None else error.__cause__
            failed.add_note(f"under {about}; seeds=[{seed}] repeats it")
            raise
        if not argv and callable(called) and (wrong := parted(outcome.results, calm.results)):
            raise DependsOnTimeError(f"{wrong}\nunder {about}; seeds=[{seed}] repeats it")

    def _in_every_order(self, called: Any, argv: Sequence[str]) -> VirtualRun:
        """Return the run in the first order, once it has come to the same in all others.

        Raises:
            SimulationError: of an order in which the program fails; a note shows it beside another.
            DependsOnOrderError, OrdersError: see `run`.
        """
        __tracebackhide__ = True
        from collectives.virtual.exploration import ClusterOrders

        exploration = ClusterOrders(self.ranks, self.network, self.algorithm).explore(called, argv)
        assert exploration.first is not None
        if exploration.parting is not None:
            raise _failure_in(exploration.parting)
        first = exploration.first.outcome
        assert first.run is not None
        sys.stdout.write("".join(first.printed))
        return first.run

    def _model(self) -> ComputeModel | Mapping[str, int] | None:
        if not isinstance(self.compute, str):
            return self.compute
        from testbed.options.arguments import parse_compute_model

        return parse_compute_model(self.compute)


def _taking(kind: Callable[P, object]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Let a function take what *kind* takes, for whoever reads its signature."""

    def taken(function: Callable[..., T]) -> Callable[P, T]:
        function.__signature__ = inspect.signature(kind)  # type: ignore[attr-defined]
        return function

    return taken


@_taking(VirtualCluster)
def on_ranks(*args: Any, **options: Any) -> Callable[[Test], Test]:
    """Return a decorator that makes a test run as each of so many ranks; see `VirtualCluster`.

    The test gets its rank if it has an argument ``rank``; all other arguments, be they from fixtures, from
    ``parametrize`` or from Hypothesis, are made once, and the ranks share them.

    Raises:
        TypeError: used without parentheses.
    """
    if args and callable(args[0]):
        raise TypeError(f"on_ranks: expected a number of ranks, such as @on_ranks(4), got {args[0]!r}")
    cluster = VirtualCluster(*args, **options)

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        wants_rank = "rank" in signature.parameters

        @functools.wraps(test)
        def as_each_rank(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            cluster.run(lambda rank: test(*args, **kwargs, **({"rank": rank} if wants_rank else {})))

        setattr(as_each_rank, ON_RANKS, cluster)
        given = [one for name, one in signature.parameters.items() if name != "rank"]
        as_each_rank.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return cast(Test, as_each_rank)

    return decorate


def prepare(tests: Iterable[Callable[..., Any]]) -> None:
    """Import what *tests* need: what runs ranks, and torch's compiler where an optimizer will ask for it.

    What is there by then is no longer looked through for garbage (``gc.freeze``), which after every few short
    tests would take longer than one of them.

    Raises:
        ImportError: it is not there.
    """
    from testbed.errors import has_torch

    if not has_torch():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("collectives.virtual.setting")
        from collectives.virtual.gpu.virtual_cuda import text_of_module

        texts = {text_of_module(inspect.unwrap(test)) or "" for test in tests}
        if any(word in text for text in texts for word in ("optim", "fsdp", "fully_shard")):
            importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()


def _seeds(seeds: Seeds) -> tuple[int, ...]:
    """Return the seeds that are meant.

    Raises:
        ValueError: a number below 0.
    """
    chosen = () if seeds is None else tuple(range(seeds) if isinstance(seeds, int) else seeds)
    if (isinstance(seeds, int) and seeds < 0) or any(seed < 0 for seed in chosen):
        raise ValueError(f"seeds: expected how many, or seeds from 0, got {seeds!r}")
    return chosen


def _failure_in(parting: Parting) -> BaseException:
    """Return what is raised because of an order that comes to something else than the first, or fails."""
    error, lines = parting.order.outcome.error, parting.lines()
    if error is None:
        return DependsOnOrderError("\n".join([f"{parting.what} depends on the order of events", *lines]))
    cause = error if error.__cause__ is None else error.__cause__
    cause.add_note("\n".join(["in this order of events:", *lines]))
    return error


def _of_rank(error: RankError) -> BaseException:
    """Return what the rank has raised, beginning in the user's code, with a note of where it was."""
    from collectives.virtual.diagnosis.places import is_users

    raised = error.__cause__
    assert raised is not None
    traceback: TracebackType | None = raised.__traceback__
    while traceback is not None and not is_users(traceback.tb_frame.f_code.co_filename):
        traceback = traceback.tb_next
    others = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()) if note)
    raised.add_note(f"raised on rank {error.rank}{'; the others:' if others else ''}{others}")
    return raised.with_traceback(traceback)
