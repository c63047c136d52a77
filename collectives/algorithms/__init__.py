"""The shipped algorithms.  A new one is a file in this folder and a line in this list."""

from __future__ import annotations

from collectives.algorithms.bine import bine, bine_broadcast, bine_gather, bine_reduce, bine_scatter
from collectives.algorithms.bruck import bruck_all_gather, bruck_all_to_all
from collectives.algorithms.bucket import bucket
from collectives.algorithms.chain import chain, chain_broadcast, chain_reduce
from collectives.algorithms.direct import (
    direct,
    direct_all_gather,
    direct_all_to_all,
    direct_gather,
    direct_reduce_scatter,
    direct_scatter,
)
from collectives.algorithms.double_binary_tree import (
    double_binary_tree,
    double_binary_tree_broadcast,
    double_binary_tree_reduce,
)
from collectives.algorithms.gloo.all_to_all import gloo_all_to_all
from collectives.algorithms.gloo.ring import (
    gloo_ring,
    gloo_ring_all_gather,
    gloo_ring_reduce,
    gloo_ring_reduce_scatter,
)
from collectives.algorithms.gloo.tree import gloo_tree_broadcast
from collectives.algorithms.halving_doubling import (
    halving_doubling,
    halving_doubling_all_gather,
    halving_doubling_reduce_scatter,
)
from collectives.algorithms.hierarchical import hierarchical
from collectives.algorithms.hierarchical_all_to_all import hierarchical_all_to_all
from collectives.algorithms.naive import naive
from collectives.algorithms.one_shot import one_shot
from collectives.algorithms.pat import pat_all_gather, pat_reduce_scatter
from collectives.algorithms.recursive_doubling import recursive_doubling, recursive_doubling_all_gather
from collectives.algorithms.ring import ring, ring_all_gather, ring_reduce_scatter
from collectives.algorithms.swing import swing, swing_all_gather, swing_reduce_scatter
from collectives.algorithms.tree import tree, tree_broadcast, tree_gather, tree_reduce, tree_scatter
from collectives.program import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    naive,
    bine,
    bine_broadcast,
    bine_reduce,
    bine_gather,
    bine_scatter,
    bruck_all_gather,
    bruck_all_to_all,
    bucket,
    chain,
    chain_broadcast,
    chain_reduce,
    direct,
    direct_reduce_scatter,
    direct_all_gather,
    direct_all_to_all,
    direct_gather,
    direct_scatter,
    double_binary_tree,
    double_binary_tree_broadcast,
    double_binary_tree_reduce,
    halving_doubling,
    halving_doubling_reduce_scatter,
    halving_doubling_all_gather,
    hierarchical,
    hierarchical_all_to_all,
    one_shot,
    pat_reduce_scatter,
    pat_all_gather,
    recursive_doubling,
    recursive_doubling_all_gather,
    ring,
    ring_reduce_scatter,
    ring_all_gather,
    swing,
    swing_reduce_scatter,
    swing_all_gather,
    tree,
    tree_broadcast,
    tree_reduce,
    tree_gather,
    tree_scatter,
)
"""Our own: those that ``all`` and ``auto`` mean."""

NATIVE_ALGORITHMS: tuple[Algorithm, ...] = (
    gloo_ring,
    gloo_ring_reduce_scatter,
    gloo_ring_all_gather,
    gloo_ring_reduce,
    gloo_tree_broadcast,
    gloo_all_to_all,
)
"""Those of vendors' libraries, known by their names; see `collectives.catalogue.native`."""
