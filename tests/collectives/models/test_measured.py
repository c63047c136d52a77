"""Times by measurement, at counts and sizes that were measured and beyond them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from collectives import simulate
from collectives.errors import NotSupportedError
from collectives.models.measured import measured_on
from sim import Topology
from sim.measured import Line, MeasuredCurve
from sim.scenario.conditions import Jitter

US = 10**6
TWO = MeasuredCurve(
    "all_reduce", 2, 8, (Line(20 * US, 10**9), Line(100 * US, 10**11)), (1024, 2**26), (), 0.1, 0.05
)
FOUR = replace(TWO, num_nodes=4, lines=(Line(30 * US, 10**9), Line(130 * US, 80 * 10**9)))


def topology(*curves, nodes=2):
    return replace(
        Topology.nodes(
            num_nodes=nodes,
            ranks_per_node=8,
            intra_bandwidth="300GB/s",
            intra_latency=0,
            nics_per_node=8,
            nic_bandwidth="25GB/s",
            nic_latency=0,
        ),
        measured=curves,
    )


def test_the_least_line_gives_the_time():
    run = simulate("native", nbytes=2**26, topology=topology(TWO), model="measured")

    seconds = 100e-6 + 2**26 / 1e11
    assert run.seconds == pytest.approx(seconds, rel=1e-9)
    assert run.interval_seconds == (pytest.approx(seconds / 1.05), pytest.approx(seconds * 1.05))
    assert (run.model, run.engine, run.algorithm, run.beyond) == (
        "measured",
        "closed form",
        "native/Simple",
        "",
    )


def test_the_factor_runs_between_two_sizes():
    curve = replace(TWO, lines=(Line(100 * US, 10**15),), sizes=(1024, 4096), factors=(1.0, 2.0))

    found = measured_on(topology(curve), range(16), "all_reduce", 2048)

    assert found.seconds == pytest.approx(100e-6 * 2**0.5, rel=1e-6)


def test_beyond_the_sizes_measured_the_interval_is_twice_as_wide():
    found = measured_on(topology(TWO), range(16), "all_reduce", 2**30)

    assert found.high / found.seconds == pytest.approx(1.1)
    assert found.carried == "above 67108864 bytes, the most measured"


def test_node_counts_are_carried_on_in_the_logarithm():
    found = measured_on(topology(TWO, FOUR, nodes=16), range(128), "all_reduce", 1024)

    assert found.seconds == pytest.approx(50e-6 + 1024 / 1e9, rel=0.01)
    assert found.low == pytest.approx((30e-6 + 1024 / 1e9) / 1.2, rel=0.01)
    assert found.high == pytest.approx((90e-6 + 1024 / 1e9) * 1.2, rel=0.01)
    assert found.carried == "carried on from 2 × 8 and 4 × 8 ranks"


def test_between_two_counts_the_time_lies_between_theirs():
    times = [
        measured_on(topology(TWO, FOUR, nodes=n), range(8 * n), "all_reduce", 4096).seconds for n in (2, 3, 4)
    ]

    assert times == sorted(times)


def test_an_all_reduce_measured_on_two_nodes_at_most_takes_a_ring_on_more():
    one = replace(TWO, num_nodes=1)

    found = measured_on(topology(one, TWO, nodes=8), range(64), "all_reduce", 2**26)

    assert found.seconds > 2 * 63 / 64 * 2**26 / 200e9 + 100e-6


@pytest.mark.parametrize(
    ("curves", "arguments", "said"),
    [
        ((), {}, "its file holds none; make one that does with testbed calibrate"),
        ((TWO,), {"collective": "broadcast"}, "broadcast was measured on nothing.*there is all_reduce"),
        ((FOUR,), {}, "on 2 × 8 ranks follows from none.*measured on 4 × 8"),
        ((TWO,), {"placement": "round_robin"}, "one node after another"),
        ((TWO,), {"algorithm": "ring"}, "library's own algorithm, not of ring"),
        ((TWO,), {"overhead": "1us"}, "has the software in it"),
        ((TWO,), {"conditions": [Jitter("1us")]}, "knows no conditions"),
        ((replace(TWO, lines=(Line(1, 10**15),)),), {}, "less than the .* that its links allow"),
    ],
)
def test_what_does_not_follow_from_measurements_is_refused(curves, arguments, said):
    arguments = {"algorithm": "native", "nbytes": 2**20, "model": "measured", **arguments}

    with pytest.raises(NotSupportedError, match=re.compile(said, re.S)):
        simulate(topology=topology(*curves), **arguments)
