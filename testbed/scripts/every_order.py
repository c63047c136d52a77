"""Scripts in every order of events, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collectives.catalogue.selectors import Choice
from sim import Topology
from testbed.errors import UsageError
from testbed.output.table import counted, progress
from testbed.result import Result, Rows, Text, asked, found
from testbed.scripts.script import check_script
from testbed.scripts.stopping import stopped_at_once

if TYPE_CHECKING:
    from collectives.virtual.exploration import Exploration

COLUMNS = (*asked("script", "ranks"), *found("orders", "complete"))
MODEL = (
    "every order of turns, and of messages to a receive from any source, that ranks can tell apart; messages "
    "and computation take no time, waiting by the clock does; threads of a rank take one order"
)


def run_in_every_order(
    script: str, arguments: Sequence[str], topology: Topology, algorithm: Choice, *, module: bool, limit: int
) -> Result:
    """Run *script* on the ranks of *topology* in every order of events, and return what has come of it.

    Raises:
        UsageError: there is no such script.
        OrdersError: not all orders can be run.
    """
    check_script(script, is_module=module)
    from collectives.virtual import Module
    from collectives.virtual.exploration import ClusterOrders, Exploration

    orders = ClusterOrders(None, topology, algorithm, limit)
    exploration = Exploration()
    try:
        with progress() as advance, stopped_at_once():
            for explored in orders.each(Module(script) if module else script, arguments):
                exploration.add(explored)
                advance(counted(exploration.num_orders, "order"))
                if exploration.parting is not None:
                    break
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from None

    return _result(script, arguments, topology, exploration)


def _result(script: str, arguments: Sequence[str], topology: Topology, exploration: Exploration) -> Result:
    """Return whether *script* comes to the same in every order; fail with two orders where it does not."""
    ranks = counted(topology.num_ranks, "rank")
    parting, failure = exploration.parting, None
    first = None if exploration.first is None else exploration.first.outcome.run
    mistakes = () if first is None else first.report.mistakes
    answer = f"{script}: {ranks} come to the same in {_spelled(exploration.num_orders)}."
    if parting is not None:
        fails = parting.order.outcome.error is not None
        answer = f"{script}: the order of events matters: " + (
            "it fails in one" if fails else f"{parting.what} depends on it"
        )
        failure = "\n".join([answer, *parting.lines(), "As a test:", *_as_test(script, arguments, topology)])
    known = topology.num_ranks, exploration.num_orders, parting is None
    found_of_all = dict(zip(("ranks", "orders", "complete"), known, strict=True))
    return Result(
        question=f"Does {script} come to the same on {ranks} in every order of events?",
        answer=answer,
        method="simulated",
        model=MODEL,
        rows=Rows(COLUMNS, [{"script": script, **found_of_all}]),
        asked=("script", "ranks"),
        body={
            "script": script,
            **found_of_all,
            "mistakes": list(mistakes),
            "parting": None
            if parting is None
            else {"order": parting.number, "what": parting.what, "orders": parting.lines()},
        },
        parts=[Text([answer, *(f"Note: {text}." for text in mistakes)])] if parting is None else [],
        failure=failure,
    )


def _spelled(num_orders: int) -> str:
    if num_orders == 1:
        return "every order of events: there is only one that they can tell apart"
    return f"every order of events that they can tell apart: {num_orders:,}"


def _as_test(script: str, arguments: Sequence[str], topology: Topology) -> list[str]:
    """Return the lines of a pytest that fails as the command did."""
    given = ", ".join(map(repr, [script, *arguments]))
    name = "".join(letter if letter.isalnum() else "_" for letter in Path(script).stem)
    return [
        f"    def test_{name}_does_not_depend_on_the_order_of_events(virtual_cluster):",
        f'        virtual_cluster(ranks={topology.num_ranks}, orders="all").run({given})',
    ]
