"""Rows that repeat: skipped ones take what they would have taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.catalogue.resolve import resolve_algorithm
from collectives.errors import NotExactError
from collectives.program import Algorithm
from collectives.program.channels import in_channels
from collectives.simulation.engines import steady_rows
from collectives.simulation.engines.makespan import Makespan
from sim.topology import Topology
from sim.topology.description import load_network
from sim.units import Int64Array

ALL_GATHER = resolve_algorithm("ring", "all_gather")


@pytest.mark.parametrize("network", ["dgx-h100", "ethernet-10g"])
@settings(max_examples=15, deadline=None)
@given(data=st.data(), num_ranks=st.sampled_from([16, 24, 64]), channels=st.sampled_from([1, 2, 8]))
def test_rows_that_are_skipped_take_what_they_would_have_taken(
    network: str, data: st.DataObject, num_ranks: int, channels: int
) -> None:
    algorithm = in_channels(ALL_GATHER, channels).with_parameters(ranks_per_node=8)
    topology = load_network(network).topology(num_ranks)
    nbytes = num_ranks * data.draw(st.integers(1, 100_000))
    start = np.zeros(num_ranks, dtype=np.int64)
    for rank, late in data.draw(
        st.dictionaries(st.integers(0, num_ranks - 1), st.integers(0, 10**8))
    ).items():
        start[rank] = late

    skipped = _outcome(topology, algorithm, nbytes, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steady_rows, "_same_for_all", lambda before, after: None)
        row_by_row = _outcome(topology, algorithm, nbytes, start)

    assert skipped == row_by_row


def _outcome(topology: Topology, algorithm: Algorithm, nbytes: int, start: Int64Array) -> Any:
    """Return when ranks are through and links free, or why that is not known."""
    makespan = Makespan(topology)
    try:
        return makespan.run(algorithm, nbytes, start).tolist(), makespan._busy_until.tolist()
    except NotExactError as error:
        return str(error)


def test_a_ring_of_many_channels_is_worked_out_in_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced = []
    advance = steady_rows.CoflowTimes.advance
    monkeypatch.setattr(
        steady_rows.CoflowTimes, "advance", lambda *args: advanced.append(1) or advance(*args)
    )
    algorithm = in_channels(ALL_GATHER, 8).with_parameters(ranks_per_node=8)

    Makespan(load_network("dgx-h100").topology(256)).run(algorithm, 256 * 1001, np.zeros(256, dtype=np.int64))

    assert len(advanced) < 60
