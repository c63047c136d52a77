"""Nodes of ranks, for the programs that ask which ranks share one.

A program asks by having a parameter ``ranks_per_node``.  Whoever knows where the ranks of a
communicator are binds it: `collectives.timing.simulation` and `collectives.virtual.group` from the
topology, `collectives.communicators.connection` from what the launcher of the processes says.  Proofs and
drawings have no placement and take the program's default; None means that it can do without.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import takewhile

from collectives.program.program import Algorithm

PARAMETER = "ranks_per_node"


def asks_for_nodes(algorithm: Algorithm) -> bool:
    """Return whether *algorithm* has a parameter ``ranks_per_node`` that nobody has given."""
    return PARAMETER in algorithm.parameter_names() and PARAMETER not in algorithm.parameters


def can_do_without(algorithm: Algorithm) -> bool:
    """Return whether *algorithm*, which asks for nodes, also runs where nobody knows them."""
    return inspect.signature(algorithm.program).parameters[PARAMETER].default is None


def on_nodes(algorithm: Algorithm, ranks_per_node: int, ranks: Sequence[int]) -> Algorithm:
    """Return *algorithm* for a group whose members are *ranks*, if it asks for nodes.

    A program takes consecutive members for a node.  Where neighbours are on different nodes, as
    placed round-robin, it is told nodes of one rank.

    Args:
        algorithm: returned as it is where it does not ask.
        ranks_per_node: ranks of the world that fill a node, in order.
        ranks: which rank of the world each member of the group is.
    """
    if not asks_for_nodes(algorithm):
        return algorithm
    return algorithm.with_parameters(ranks_per_node=members_per_node(ranks, ranks_per_node))


def members_per_node(ranks: Sequence[int], ranks_per_node: int) -> int:
    """Return the most members that share a node wherever one cuts: 0 … g-1, g … 2g-1, and so on.

    The last ones may be fewer.  It is 1 where neighbours in the group are on different nodes.

    Args:
        ranks: which rank of the world each member of the group is.
        ranks_per_node: ranks of the world that fill a node, in order.
    """
    nodes = [rank // ranks_per_node for rank in ranks]
    first = sum(1 for _ in takewhile(lambda node: node == nodes[0], nodes))
    return next(
        size
        for size in range(first, 0, -1)
        if all(len({*nodes[start : start + size]}) == 1 for start in range(0, len(nodes), size))
    )
