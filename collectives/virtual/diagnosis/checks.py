"""Checks of a run for mistakes that stop nothing: all of them, and who tells them.

Besides it is noted where modes of torch that count communication see less on rank threads than in processes.
`CommDebugMode` counts what passes torch's dispatcher.  Functional collectives do, as everywhere; but a
process group in Python is called directly, so calls of ``torch.distributed`` and of FSDP2 are not counted.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from collectives.virtual.diagnosis.buffers_in_flight import BuffersInFlight
from collectives.virtual.diagnosis.calling_models import CallingModels
from collectives.virtual.diagnosis.data_seen import DataSeen
from collectives.virtual.diagnosis.files_shared import FilesShared
from collectives.virtual.diagnosis.groups_made import GroupsMade, ThreadsOfGroups
from collectives.virtual.diagnosis.issue_order import IssueOrder
from collectives.virtual.diagnosis.sampler_checks import SamplerChecks
from collectives.virtual.diagnosis.unlike_calls import UnlikeCalls
from collectives.virtual.diagnosis.wasted_reductions import WastedReductions
from collectives.virtual.diagnosis.watched_calls import CallListeners, WatchedCall, calls_watched
from collectives.virtual.iterations import Iterations
from collectives.virtual.notices import Notices
from sim.cluster import Cluster


@contextlib.contextmanager
def mistakes_noticed(cluster: Cluster) -> Iterator[None]:
    """Look for mistakes of the ranks of *cluster* while the body runs, and let its notices tell them."""
    topology = cluster.topology
    models = CallingModels()
    buffers, unlike, wasted = BuffersInFlight(), UnlikeCalls(models), WastedReductions()
    files = FilesShared(topology.ranks_per_node, topology.num_ranks)
    groups, data = GroupsMade(), DataSeen(lambda rank: Iterations.of(cluster).finished[rank])
    order, threads = IssueOrder(), ThreadsOfGroups()
    for check in (groups, buffers, unlike, order, threads, files, data, wasted):
        Notices.of(cluster).add_source(check.mistakes)

    with (
        SamplerChecks().watching(),
        groups.watching(),
        models.watching(),
        data.watching(),
        wasted.watching(),
        files.watching(),
        calls_watched(
            CallListeners(
                begins=[files.begins],
                began=[
                    *(check.began for check in (buffers, unlike, order, threads, files, data, wasted)),
                    note_uncounted,
                ],
                ended=[buffers.ended, files.ended],
                joined=[buffers.joined, files.joined, order.joined],
            )
        ),
    ):
        yield


TEXT = (
    "CommDebugMode counts functional collectives alone, such as those of DTensors: calls of process groups "
    "do not pass torch's dispatcher here; for all counts run the script for real: testbed run --processes N"
)
_MODULE = "torch.distributed.tensor.debug._comm_mode"
_DISPATCHER = f"{Path(torch.__file__).parent}/_ops.py"


def note_uncounted(call: WatchedCall) -> None:
    """Give the note, if a mode that counts is active and *call* has passed no dispatcher."""
    module: Any = sys.modules.get(_MODULE)
    if module is None or call.caller.f_code.co_filename == _DISPATCHER:
        return
    if any(isinstance(mode, module.CommDebugMode) for mode in _get_current_dispatch_mode_stack()):
        Notices.of(call.rank_thread.cluster).add(TEXT)
