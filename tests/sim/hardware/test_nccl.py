"""Machines of NCCL's model: values that are not allowed are refused by the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from sim import TopologyError
from sim.hardware import Channels, Hardware


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"generation": "pascal"},
            "generation: expected one of volta, ampere, hopper, blackwell, got 'pascal'",
        ),
        ({"one_node": None}, "one_node: expected Channels, got None"),
        ({"several_nodes": 3}, "several_nodes: expected Channels, got 3"),
        ({"intra_link": "usb"}, "intra_link: expected one of nvlink, pci, got 'usb'"),
        ({"cpu": 86}, "cpu: expected one of intel, amd, other, got 86"),
        ({"net_overhead_ps": 0.5}, "net_overhead_ps: expected a whole number of at least 0, got 0.5"),
        ({"net_latency_ps": -1}, "net_latency_ps: expected a whole number of at least 0, got -1"),
        ({"collnet": True}, "collnet: expected Channels, got True"),
        ({"ll128": 1}, "ll128: expected true or false, got 1"),
        ({"generation": "ampere", "nvls_one_node": Channels.of(8, "40GB/s")}, "ampere has no NVLink SHARP"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    good = {"generation": "hopper", "one_node": Channels.of(12, "30GB/s")}

    with pytest.raises(TopologyError, match=f"hardware: .*{message}"):
        Hardware(**{**good, **fields})


@pytest.mark.parametrize("fields", [{"count": 0}, {"intra_bandwidth": 0}, {"inter_bandwidth": 1.5}])
def test_channels_without_a_whole_number_are_refused_by_name(fields: dict[str, Any]) -> None:
    (name,) = fields

    with pytest.raises(TopologyError, match=f"channels: {name}: expected a whole number of at least 1"):
        Channels(**{"count": 1, "intra_bandwidth": 1, "inter_bandwidth": 1, **fields})


def test_between_nodes_a_channel_is_as_fast_as_inside_unless_said_otherwise() -> None:
    assert Channels.of(8, "40GB/s") == Channels(8, 40 * 10**9, 40 * 10**9)
    assert Channels.of(8, "40GB/s", "200Gbps") == Channels(8, 40 * 10**9, 25 * 10**9)


def test_an_amd_host_needs_twice_as_long_to_post_a_message() -> None:
    channels = Channels.of(8, "20GB/s")

    assert Hardware("ampere", channels).posting_ps == 10**6
    assert Hardware("ampere", channels, cpu="amd").posting_ps == 2 * 10**6
    assert Hardware("ampere", channels, cpu="amd", net_overhead_ps=0).posting_ps == 0


def test_nvls_is_there_where_it_has_channels() -> None:
    channels = Channels.of(8, "40GB/s")

    assert not Hardware("hopper", channels).nvls
    assert Hardware("hopper", channels, nvls_one_node=channels).nvls
