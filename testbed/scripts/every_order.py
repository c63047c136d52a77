"""Scripts in every order of events, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import CheckError, UsageError
from testbed.output.folder import document
from testbed.output.table import counted, print_json, progress, stdout_console
from testbed.scripts.script import check_script
from testbed.scripts.stopping import stopped_at_once

if TYPE_CHECKING:
    from collectives.catalogue.selectors import Choice
    from collectives.virtual.exploration import Exploration
    from sim import Topology

MODEL = (
    "every order of turns, and of messages to a receive from any source, that ranks can tell apart; messages "
    "and computation take no time, waiting by the clock does"
)


def run_in_every_order(
    script: str,
    arguments: Sequence[str],
    topology: Topology,
    algorithm: Choice,
    *,
    module: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Run *script* on the ranks of *topology* in every order of events, and print what has come of it.

    Raises:
        UsageError: there is no such script.
        CheckError: it fails in an order, or comes to something else than in the first.
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

    ranks = counted(topology.num_ranks, "rank")
    parting = exploration.parting
    if as_json:
        _print_json(exploration, script, topology)
    elif parting is None:
        console = stdout_console()
        told = f"{script}: {ranks} come to the same in {_spelled(exploration.num_orders)}."
        console.print(told, markup=False, soft_wrap=True)
    if parting is not None:
        fails = parting.order.outcome.error is not None
        what = "it fails in one" if fails else f"{parting.what} depends on it"
        lines = [*parting.lines(), "As a test:", *_as_test(script, arguments, topology)]
        raise CheckError("\n".join([f"{script}: the order of events matters: {what}", *lines]))


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


def _print_json(exploration: Exploration, script: str, topology: Topology) -> None:
    parting = exploration.parting
    print_json(
        document(
            method="simulated",
            model=MODEL,
            script=script,
            ranks=topology.num_ranks,
            orders=exploration.num_orders,
            complete=parting is None,
            parting=None
            if parting is None
            else {"order": parting.number, "what": parting.what, "orders": parting.lines()},
        )
    )
