"""``testbed network``: the links of a network, the distance of its ranks, and its bisection bandwidth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import MAX_RANKS
from testbed.options.command import command
from testbed.result import Result

if TYPE_CHECKING:
    from sim.topology.description import NetworkDescription

EXAMPLES = """\b
Examples:
  testbed network
  testbed network dgx-h100 --ranks 64
  testbed network my_cluster.toml --plot my_cluster.svg
"""

DEFAULT_RANKS = 64


@partial(command, draws="the network")
def network(
    name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]")] = None,
    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None,
) -> Result:
    """Show a network: its links, its diameter, its bisection bandwidth, and a sketch.

    Without a name, the networks that ship are listed.

    Args:
        name: A preset or a network file; without, all presets are listed.
        ranks: How many ranks, where the file does not say; by default 64, or two nodes if that is more.
    """
    from sim import load_network
    from testbed.report.network import listing_result, network_result

    if name is None:
        if ranks is not None:
            raise UsageError("--ranks needs a network: its name, or the path of a .toml file")
        return listing_result()
    description = load_network(name)
    topology = description.topology(default_ranks(description, ranks))
    return network_result(description, topology)


def default_ranks(description: NetworkDescription, ranks: int | None) -> int | None:
    """Return *ranks*, or where the file does not say how many, 64, or two nodes if that is more."""
    if ranks is not None or description.num_ranks is not None:
        return ranks
    return max(DEFAULT_RANKS, 2 * getattr(description.fields, "ranks_per_node", 1))
