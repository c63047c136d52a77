"""Ranks in virtual time on which a function or a script runs in every order of events."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.catalogue.selectors import Choice
from collectives.timing.assumptions import Assumptions
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.exploration.report import Exploration, Outcome
from collectives.virtual.exploration.search import PATIENCE, Explored, explore
from collectives.virtual.isolation.per_rank import Streams
from collectives.virtual.parameters.record import ParameterRecord
from collectives.virtual.setting import VirtualRun
from collectives.virtual.task import FunctionOrScript
from collectives.virtual.virtual_run import run
from sim.cluster import Order
from sim.errors import OrdersError, SimulationError
from sim.topology import Topology

DEFAULT_LIMIT = 10_000


@dataclass(frozen=True)
class ClusterOrders:
    """Runs of one program on so many ranks, one run for each order of events that the ranks can tell apart.

    Messages and computation take no time, so every order is possible that any speed of ranks and network
    could bring about; only what ranks wait by the clock takes its time.

    Attributes:
        ranks: how many; None: as many as *network* has, where it says so.
        network: of which nothing but its places matters.
        algorithm: of collectives, where the code chooses none.
        limit: of orders; beyond it the exploration gives up.
        patience: how often in a row a line of code may look at something in vain, before it changes.
    """

    ranks: int | None = None
    network: Topology | str | os.PathLike[str] | None = None
    algorithm: Choice | None = None
    limit: int = DEFAULT_LIMIT
    patience: int = PATIENCE

    def each(self, fn_or_script: FunctionOrScript, argv: Sequence[str] = ()) -> Iterator[Explored[Outcome]]:
        """Run it in one order after another, and yield each with its outcome.

        Raises:
            OrdersError: there are more than the limit; more than the order of events decides how it runs; or
                a run does not end.
        """

        def carried_out(order: Order) -> Outcome:
            return self._run(fn_or_script, argv, order)

        for number, explored in enumerate(explore(carried_out, current_place, self.patience)):
            if number == self.limit:
                raise OrdersError(
                    f"orders: more than {self.limit} orders of events can be told apart; give fewer ranks or "
                    "iterations, or a higher limit"
                )
            yield explored

    def explore(self, fn_or_script: FunctionOrScript, argv: Sequence[str] = ()) -> Exploration:
        """Run it in every order, or until one has another outcome than the first, or fails.

        Raises:
            OrdersError: as `each`.
        """
        exploration = Exploration()
        for explored in self.each(fn_or_script, argv):
            exploration.add(explored)
            if exploration.parting is not None:
                break
        return exploration

    def _run(self, fn_or_script: FunctionOrScript, argv: Sequence[str], order: Order) -> Outcome:
        """Carry the program out in one order."""
        printed: dict[int, io.StringIO] = {}
        parameters = ParameterRecord()

        def streams(rank: int) -> Streams:
            own = printed.setdefault(rank, io.StringIO())
            return own, own

        is_function = callable(fn_or_script)
        outcome: VirtualRun | None = None
        error: BaseException | None = None
        try:
            outcome = run(
                fn_or_script,
                self.ranks,
                self.network,
                algorithm=self.algorithm,
                assumptions=Assumptions.ideal(),
                argv=argv,
                order=order,
                parameters=parameters,
                streams=streams,
            )
        except OrdersError:
            raise
        except SimulationError as raised:
            error = raised
        results = outcome.results if outcome is not None and is_function else []
        texts = {rank: own.getvalue() for rank, own in printed.items()}
        return Outcome.of(error, outcome, results, texts, parameters.digests())
