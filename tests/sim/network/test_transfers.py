from __future__ import annotations

import pytest

from sim import Topology, TopologyError, UnitError, transfer_times

SWITCH = Topology.switch(num_ranks=4, bandwidth="100Gbps", latency="2us")


def test_messages_share_a_link_from_when_both_are_there() -> None:
    times = transfer_times([(0, 2, 1_250_000_000, 0.0), (0, 1, 625_000_000, 0.025)], topology=SWITCH)

    assert times == [0.150004, 0.125004]


def test_starts_may_be_text_and_no_transfers_take_no_time() -> None:
    assert transfer_times([(0, 1, 0, "3us")], topology=SWITCH) == [7e-6]
    assert transfer_times([], topology=SWITCH) == []


@pytest.mark.parametrize(
    ("transfer", "error", "said"),
    [
        ((0, 0, 1, 0), TopologyError, "to itself"),
        ((0, 4, 1, 0), TopologyError, "rank 4"),
        ((0, 1, -1, 0), UnitError, "-1 bytes"),
        ((0, 1, 1, "soon"), UnitError, "start of transfer 0"),
        ((0, 1, 1, -1.0), UnitError, "negative"),
    ],
)
def test_an_impossible_transfer_is_refused(transfer: tuple, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        transfer_times([transfer], topology=SWITCH)
