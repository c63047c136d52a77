"""Hardware: kernels of devices, NCCL's channels, and the slowest of several GPUs."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import pi, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import TopologyError, load_device
from sim.files.inefficiency_table import inefficiency_table
from sim.files.late_ranks import expected_maximum, slowest_of, slowest_on
from sim.hardware import Channels, Hardware, KernelTable
from sim.units import SECOND

AXES = {"m": (4, 64, 1024), "k": (16, 256)}

SIZES = st.fixed_dictionaries({name: st.integers(1, 5000) for name in AXES})

RATES = st.tuples(*[st.integers(1, 10**15)] * 6)


def table(rates):
    return KernelTable("product", "float32", "arithmetic", AXES, rates, launch_ps=7)


@given(RATES, SIZES)
def test_on_the_grid_the_rate_is_the_measured_one_and_elsewhere_between_those_of_the_nearest(rates, shape):
    shapes = [{"m": m, "k": k} for m in AXES["m"] for k in AXES["k"]]
    nearest = {name: min(max(shape[name], sizes[0]), sizes[-1]) for name, sizes in AXES.items()}
    own = table(rates)

    assert tuple(own.rate(one) for one in shapes) == rates
    assert min(rates) * (1 - 1e-9) <= own.rate(shape) <= max(rates) * (1 + 1e-9)
    assert own.rate(shape) == own.rate(nearest)
    assert own.covers(shape) == (shape == nearest)
    assert table((1000,) * 6).duration_ps(5000, shape) == 5 * SECOND + 7


def test_between_two_sizes_the_rate_is_linear_in_logarithms():
    rates = (10, 1000, 10, 1000, 10, 1000)

    assert table(rates).rate({"m": 7, "k": 64}) == pytest.approx(100)  # halfway from 16 to 256


@pytest.mark.parametrize(
    ("axes", "rates", "said"),
    [
        ({"m": ()}, (), "axis m: expected ascending sizes"),
        ({"m": (2, 2)}, (1, 1), "axis m: expected ascending sizes"),
        ({"m": (0, 2)}, (1, 1), "axis m: expected ascending sizes of at least 1"),
        ({"m": (1, 2)}, (1,), "a rate for each of the 2 shapes, got 1"),
        ({"m": (1,)}, (0,), "rates of at least 1"),
    ],
)
def test_a_table_that_is_no_grid_is_refused(axes, rates, said):
    with pytest.raises(ValueError, match=said):
        KernelTable("product", "float32", "arithmetic", axes, rates)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"generation": "pascal"}, "generation: expected one of volta, .*, got 'pascal'"),
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
def test_a_value_that_is_not_allowed_is_refused_by_name(fields, message):
    good = {"generation": "hopper", "one_node": Channels.of(12, "30GB/s")}

    with pytest.raises(TopologyError, match=f"hardware: .*{message}"):
        Hardware(**{**good, **fields})


@pytest.mark.parametrize("fields", [{"count": 0}, {"intra_bandwidth": 0}, {"inter_bandwidth": 1.5}])
def test_channels_without_a_whole_number_are_refused_by_name(fields):
    (name,) = fields

    with pytest.raises(TopologyError, match=f"channels: {name}: expected a whole number of at least 1"):
        Channels(**{"count": 1, "intra_bandwidth": 1, "inter_bandwidth": 1, **fields})


def test_between_nodes_a_channel_is_as_fast_as_inside_unless_said_otherwise():
    assert Channels.of(8, "40GB/s") == Channels(8, 40 * 10**9, 40 * 10**9)
    assert Channels.of(8, "40GB/s", "200Gbps") == Channels(8, 40 * 10**9, 25 * 10**9)


def test_an_amd_host_needs_twice_as_long_to_post_a_message():
    channels = Channels.of(8, "20GB/s")

    assert Hardware("ampere", channels).posting_ps == 10**6
    assert Hardware("ampere", channels, cpu="amd").posting_ps == 2 * 10**6
    assert Hardware("ampere", channels, cpu="amd", net_overhead_ps=0).posting_ps == 0


def test_nvls_is_there_where_it_has_channels():
    channels = Channels.of(8, "40GB/s")

    assert not Hardware("hopper", channels).nvls
    assert Hardware("hopper", channels, nvls_one_node=channels).nvls


def test_the_expected_maximum_is_that_of_the_textbook():
    assert expected_maximum(1) == pytest.approx(0, abs=1e-9)
    assert expected_maximum(2) == pytest.approx(1 / sqrt(pi), abs=1e-6)
    assert expected_maximum(3) == pytest.approx(3 / (2 * sqrt(pi)), abs=1e-6)
    assert all(a < b for a, b in pairwise(map(expected_maximum, (4, 8, 64, 1024))))


def test_the_slowest_of_two_is_slower_than_the_mean_by_its_deviation_over_the_root_of_pi():
    assert slowest_of(1) == 1
    assert float(slowest_of(2) - 1) == pytest.approx(
        float(inefficiency_table().late_deviation) / sqrt(pi), rel=1e-5
    )


@given(fitted=st.integers(1, 4096), num_ranks=st.integers(1, 4096))
def test_rates_that_were_fitted_to_steps_of_several_ranks_have_their_slowest_in_themselves(fitted, num_ranks):
    device = replace(load_device("h100"), fitted_ranks=fitted)

    slowest = slowest_on(device, num_ranks)

    assert (slowest > 1) is (num_ranks > fitted)
    if num_ranks > fitted:
        assert slowest * slowest_of(fitted) == slowest_of(num_ranks)
    else:
        assert slowest == Fraction(1)
