"""Checks of a run for mistakes that stop nothing: all of them, and who tells them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from collectives.virtual.diagnosis.buffers_in_flight import BuffersInFlight
from collectives.virtual.diagnosis.comm_modes import note_uncounted
from collectives.virtual.diagnosis.data_seen import DataSeen
from collectives.virtual.diagnosis.files_shared import FilesShared
from collectives.virtual.diagnosis.groups_made import GroupsMade
from collectives.virtual.diagnosis.sampler_checks import SamplerChecks
from collectives.virtual.diagnosis.unlike_calls import UnlikeCalls
from collectives.virtual.diagnosis.wasted_reductions import WastedReductions
from collectives.virtual.diagnosis.watched_calls import CallListeners, calls_watched
from collectives.virtual.iterations import Iterations
from collectives.virtual.notices import Notices
from sim.cluster import Cluster


@contextlib.contextmanager
def mistakes_noticed(cluster: Cluster) -> Iterator[None]:
    """Look for mistakes of the ranks of *cluster* while the body runs, and let its notices tell them."""
    topology = cluster.topology
    buffers, unlike, wasted = BuffersInFlight(), UnlikeCalls(), WastedReductions()
    files = FilesShared(topology.ranks_per_node, topology.num_ranks)
    groups, data = GroupsMade(), DataSeen()
    for check in (groups, buffers, unlike, files, data, wasted):
        Notices.of(cluster).add_source(check.mistakes)
    Iterations.of(cluster).on_end(wasted.stepped)

    with (
        SamplerChecks().watching(),
        groups.watching(),
        data.watching(),
        files.watching(),
        calls_watched(
            CallListeners(
                begins=[files.begins],
                began=[buffers.began, unlike.began, files.began, wasted.began, note_uncounted],
                ended=[buffers.ended, files.ended],
                joined=[buffers.joined, files.joined],
            )
        ),
    ):
        yield
