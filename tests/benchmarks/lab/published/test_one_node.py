"""The library inside a node: the default answer beside what was measured, and what is carried over."""

import math
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.calibrate_presets import curves_of_presets
from benchmarks.lab.published.carried import Carrier, call_of
from benchmarks.lab.published.one_node import carried_to_a_later_generation, judge_node, median_error
from benchmarks.lab.published.split import calibrating_presets
from collectives.timing.formulas.measured import measured_on
from sim import load_network, preset_names
from testbed.calibration.tables.fit import fit_curve
from testbed.calibration.tables.rows import MeasuredRow

COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
MEASURED = ("dgx-a100", "aws-p4d", "dgx-h100", "aws-p5")
PRESETS = [name for name in preset_names() if load_network(name).fields.hardware is not None]


@cache
def judged(preset):
    return judge_node(load_network(preset), calibrating_presets().get(preset, []))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_default_inside_a_node_is_what_was_measured_there(preset):
    found = judged(preset)

    assert [row for own in found for row in own.rows if not row.held] == []
    if preset in MEASURED:
        assert {own.collective for own in found} >= set(COLLECTIVES)
    for own in found:
        errors = own.errors()
        assert (median_error(errors["default"], large=True) or 0) <= 0.06
        assert (median_error(errors["default"], large=False) or 0) <= 0.12


@pytest.mark.parametrize("preset", ["dgx-a100", "dgx-h100"])
def test_half_of_the_sizes_predict_the_other_half_and_nccls_model_is_within_a_third(preset):
    for own in judged(preset):
        errors = own.errors()

        assert (median_error(errors["left_out"], large=True) or 0) <= 0.125, own.collective
        assert (median_error(errors["left_out"], large=False) or 0) <= 0.12, own.collective
        if own.collective in COLLECTIVES:
            assert (median_error(errors["by_model"], large=True) or 1) < 0.3, own.collective
            assert (median_error(errors["by_model"], large=False) or 1) < 0.25, own.collective


def test_what_an_a100_took_says_what_an_h100_takes():
    carried = [(own.nbytes, own.error) for own in carried_to_a_later_generation()]

    assert (median_error(carried, large=False) or 1) < 0.15
    assert (median_error(carried, large=True) or 1) < 0.15


@pytest.mark.parametrize("preset", ["aws-p6-b200", "dgx-h200", "gb200-nvl72"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_preset_that_nobody_measured_says_what_it_was_carried_over_from(preset, collective):
    topology = load_network(preset).topology(load_network(preset).fields.ranks_per_node)

    for ranks in (2, 4, 8):
        found = [measured_on(topology, range(ranks), collective, 4**k * 1024) for k in range(10)]
        assert any("dgx-h100" in own.carried for own in found) or (collective, ranks) == ("all_reduce", 8)
        assert all(own.seconds < later.seconds * 1.25 for own, later in pairwise(found))


def _rows(system="one", nodes=1, latency=1e-5, rate=1e11):
    return [
        MeasuredRow(system, "all_gather", 4**k, nodes, 8 * nodes, latency + 4**k / rate) for k in range(5, 15)
    ]


@given(rate=st.floats(0.25, 8), latency=st.floats(0.25, 8))
def test_what_is_carried_waits_longer_and_moves_faster(rate, latency):
    carrier = Carrier("dgx-h100", False, rate, rate, latency, 10**12)

    for row in carrier.carried(_rows()):
        expected = 1e-5 * latency + row.nbytes / (1e11 * rate)
        assert row.seconds == pytest.approx(expected, rel=1e-3)


def test_a_generation_carries_to_itself_as_it_is_and_to_another_inside_a_node_alone():
    rows = [*_rows(), *_rows(nodes=2)]

    assert Carrier.between("dgx-h100", "dgx-h200").carried(rows) == rows
    assert {row.num_nodes for row in Carrier.between("dgx-h100", "aws-p6-b200").carried(rows)} == {1}


def test_switches_that_reduce_carry_over_by_what_nccl_counts_for_them():
    carrier = Carrier.between("dgx-h100", "aws-p6-b200")
    slow, fast = _rows(rate=4e11), _rows(rate=1e12)

    assert carrier.carried(slow)[-1].nbytes == round(slow[-1].nbytes * carrier.rate * carrier.latency)
    assert carrier.carried(fast)[-1].nbytes == round(fast[-1].nbytes * carrier.reduced_rate * carrier.latency)
    assert carrier.reduced_rate / carrier.rate == pytest.approx(0.74 / 0.85)


def test_the_latency_of_a_generation_lies_between_its_clock_and_what_was_measured():
    curves = {call_of(own): own for own in [fit_curve(_rows(latency=1e-5, rate=1e15)).curve]}
    measured = _rows(latency=2e-5, rate=1e15)

    carrier = Carrier.between("dgx-h100", "aws-p6-b200", measured, curves)

    assert carrier.latency == pytest.approx(math.sqrt(2 * 1980 / 1965), rel=1e-2)
    assert Carrier.between("dgx-a100", "dgx-h100").latency == pytest.approx(1410 / 1980)


@pytest.mark.slow
def test_presets_hold_what_the_calibrating_rows_say():
    for preset, curves in curves_of_presets().items():
        network = load_network(preset)
        assert [curve.curve() for curve in network.fields.measured] == curves, preset
